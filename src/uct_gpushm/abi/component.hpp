// SPDX-License-Identifier: BSD-3-Clause
// The objects of gpushm's component in the layout of the running UCX. Each is built once and lives
// for ever.
#pragma once

#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/abi/running.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpushm::abi {

/** gpushm's uct_component_t. */
void *component_object();

/** Makes the uct_md_t of a domain. UCX closes it with its operation `close`. */
uct_md_h make_md(std::unique_ptr<MemoryDomain> domain);

/** The interface's options as an array of ucs_config_field_t, which ends with an empty one.
 * `missing` gets the name of the first parser function that this UCX does not export. */
std::vector<unsigned char> build_option_table(const UcxLibrary &ucx, const Running &target,
                                              std::string &missing);

/** The last step of a registration: builds the component and its transport for running(), and
 * registers them in UCX. `option_table` must live for ever. */
void register_objects(const void *option_table);

}  // namespace gpushm::abi
