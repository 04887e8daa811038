// SPDX-License-Identifier: BSD-3-Clause
// The versions of UCX that gpushm serves.
#pragma once

#include <string>

namespace gpushm::abi {

/** "1.13 to 1.23". */
std::string served_versions();

/** Why gpushm cannot serve UCX major.minor and what to do, without a final full stop. Empty: it
 * can. `name` is for the message, for example "UCX 1.12.1 (/usr/lib/libucp.so.0)". */
std::string why_not_served(unsigned major, unsigned minor, bool statistics,
                           const std::string &name);

}  // namespace gpushm::abi
