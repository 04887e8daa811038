// SPDX-License-Identifier: BSD-3-Clause
// The versions of UCX that gpushm serves.
#pragma once

#include <string>

namespace gpushm::abi {

/** A UCX release. */
struct Version {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
};

inline std::string to_string(const Version &version) {
    return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.release);
}

/** "1.13 to 1.23". */
std::string served_versions();

/** Why gpushm cannot serve the UCX with this libucp or libuct and what to do, without a final full
 * stop. Empty: it can. */
std::string why_not_served(const Version &version, bool statistics, const std::string &path);

}  // namespace gpushm::abi
