// SPDX-License-Identifier: BSD-3-Clause
// A release number as UCX and Open MPI print it: "1.13.1", "6.0.0rc2".
#pragma once

#include <optional>
#include <string>

namespace gpushm::tools {

struct Version {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
};

/** Reads the first "A.B" or "A.B.C" in `text`, and ignores a suffix ("rc2", ".post1"). Empty: there
 * is none. */
std::optional<Version> parse_version(const std::string &text);

std::string to_string(const Version &version);

/** Compares major and minor. The release number never decides what gpushm does. */
bool older_than(const Version &version, unsigned major, unsigned minor);

}  // namespace gpushm::tools
