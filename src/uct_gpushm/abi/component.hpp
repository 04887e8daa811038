// SPDX-License-Identifier: BSD-3-Clause
// The pieces of our component in the running layout; each is built once and lives for ever.
#pragma once

#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/abi/running.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpushm::abi {

/** Our uct_component_t. */
void *component_object();

/** Makes the uct_md_t of a domain; UCX closes it through its operations. */
uct_md_h make_md(std::unique_ptr<MemoryDomain> domain);

/** Array of ucs_config_field_t with the interface's options, ended by an empty one. The first
 * parser function that this UCX does not export is named in `missing`. */
std::vector<unsigned char> build_option_table(const UcxLibrary &ucx, const Running &target,
                                              std::string &missing);

/** The last step of a registration: builds component and transport for running() and hands them to
 * UCX. `option_table` must live for ever. */
void register_objects(const void *option_table);

}  // namespace gpushm::abi
