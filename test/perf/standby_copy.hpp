// SPDX-License-Identifier: BSD-3-Clause
// Copies by gpushm's standby kernel alone: a command, and a window of commands.
#pragma once

#include "raw_operations.hpp"

#include <string>
#include <vector>

namespace gpushm::perf {

/** standby-d2h, ... */
std::vector<std::string> standby_operations();

/** `name`: one of them. Throws std::runtime_error when the kernel does not start. */
std::unique_ptr<RawOperation> make_standby_copy(const std::string &name,
                                                const RawSettings &settings, uint64_t seed);

}  // namespace gpushm::perf
