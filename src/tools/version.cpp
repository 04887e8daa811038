// SPDX-License-Identifier: BSD-3-Clause
// Release numbers: see version.hpp.
#include "tools/version.hpp"

#include <cctype>
#include <cstdio>

namespace gpushm::tools {

std::optional<Version> parse_version(const std::string &text) {
    for (size_t i = 0; i < text.size(); ++i) {
        if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
            continue;
        }
        Version version;
        int fields = std::sscanf(text.c_str() + i, "%u.%u.%u", &version.major, &version.minor,
                                 &version.release);
        if (fields >= 2) {
            return version;
        }
        while (i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i + 1]))) {
            ++i;
        }
    }
    return std::nullopt;
}

bool older_than(const Version &version, unsigned major, unsigned minor) {
    return version.major != major ? version.major < major : version.minor < minor;
}

}  // namespace gpushm::tools
