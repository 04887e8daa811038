// SPDX-License-Identifier: BSD-3-Clause
// Which UCX gpushm serves.
#pragma once

#include <string>

namespace gpushm::abi {

/** "1.13 to 1.23". */
std::string served_versions();

/** Empty when gpushm can serve UCX major.minor, otherwise what hinders it and what to do, without a
 * final full stop. `name`: "UCX 1.12.1 (/usr/lib/libucp.so.0)". */
std::string why_not_served(unsigned major, unsigned minor, bool statistics,
                           const std::string &name);

}  // namespace gpushm::abi
