// SPDX-License-Identifier: BSD-3-Clause
#include "tools/paths.hpp"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>

namespace gpushm::tools {

std::string resolved(const std::string &path) {
    char buffer[PATH_MAX];
    return realpath(path.c_str(), buffer) != nullptr ? buffer : path;
}

std::string file_name(const std::string &path) {
    return path.substr(path.find_last_of('/') + 1);
}

std::vector<std::string> matches_of(const std::string &pattern) {
    std::vector<std::string> paths;
    glob_t matches{};
    if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
        paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    }
    globfree(&matches);
    return paths;
}

}  // namespace gpushm::tools
