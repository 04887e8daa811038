// SPDX-License-Identifier: BSD-3-Clause
// A release number as UCX and Open MPI print it: "1.13.1", "6.0.0rc2".
#pragma once

#include "uct_gpushm/abi/served_versions.hpp"

#include <optional>
#include <string>

namespace gpushm::tools {

using abi::Version;

/** Reads the first "A.B" or "A.B.C" in `text`, and ignores a suffix ("rc2", ".post1"). Empty: there
 * is none. */
std::optional<Version> parse_version(const std::string &text);

/** Compares major and minor. The release number never decides what gpushm does. */
bool older_than(const Version &version, unsigned major, unsigned minor);

}  // namespace gpushm::tools
