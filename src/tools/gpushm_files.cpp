// SPDX-License-Identifier: BSD-3-Clause
// Where gpushm's own libraries lie: see gpushm_files.hpp.
#include "tools/gpushm_files.hpp"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

namespace gpushm::tools {

namespace {

std::vector<std::string> matches_of(const std::string &pattern) {
    std::vector<std::string> paths;
    glob_t matches{};
    if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
        paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    }
    globfree(&matches);
    return paths;
}

bool holds_both(const std::string &directory) {
    return access((directory + "/" + kPluginName).c_str(), R_OK) == 0 &&
           access((directory + "/" + kPreloadName).c_str(), R_OK) == 0;
}

std::string resolved(const std::string &path) {
    char buffer[PATH_MAX];
    return realpath(path.c_str(), buffer) != nullptr ? buffer : path;
}

}  // namespace

GpushmFiles find_gpushm_files(const std::string &chosen, const std::string &program_directory) {
    std::vector<std::string> candidates;
    if (!chosen.empty()) {
        candidates.push_back(chosen);
    } else {
        // lib, lib64, and Debian's lib/x86_64-linux-gnu
        for (const char *pattern : {"/../lib*/gpushm", "/../lib/*/gpushm"}) {
            for (std::string &path : matches_of(program_directory + pattern)) {
                candidates.push_back(std::move(path));
            }
        }
        candidates.push_back(GPUSHM_PLUGIN_DIR);
    }
    GpushmFiles files;
    for (const std::string &candidate : candidates) {
        files.searched.push_back(resolved(candidate));
        if (holds_both(candidate)) {
            files.directory = files.searched.back();
            break;
        }
    }
    return files;
}

GpushmFiles find_gpushm_files(const std::string &chosen) {
    const std::string program = resolved("/proc/self/exe");
    return find_gpushm_files(chosen, program.substr(0, program.find_last_of('/')));
}

std::string missing_files_message(const GpushmFiles &files) {
    std::string places;
    for (const std::string &directory : files.searched) {
        places += (places.empty() ? "" : ", ") + directory;
    }
    return std::string(kPluginName) + " and " + kPreloadName + " were not found in " + places +
           ": reinstall gpushm, or give their folder by --plugin-dir=DIR";
}

}  // namespace gpushm::tools
