// SPDX-License-Identifier: BSD-3-Clause
// Where gpushm's own libraries lie: see gpushm_files.hpp.
#include "tools/gpushm_files.hpp"

#include "tools/paths.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpushm::tools {

namespace {

/** 0, or the errno of a file that cannot be read. */
int reading_error(const std::string &path) {
    return access(path.c_str(), R_OK) == 0 ? 0 : errno;
}

bool is_absent(int error) {
    return error == ENOENT || error == ENOTDIR;
}

/** Returns whether gpushm is looked for no further. */
bool look_into(const std::string &directory, GpushmFiles &files) {
    bool has_one = false;
    std::string obstacle;
    for (const char *name : {kPluginName, kPreloadName}) {
        const std::string path = directory + "/" + name;
        const int error = reading_error(path);
        has_one = has_one || !is_absent(error);
        if (error != 0) {
            obstacle = path + ": " + strerror(error);
        }
    }
    if (has_one) {
        files.obstacle = obstacle;
        files.directory = obstacle.empty() ? directory : "";
    }
    return has_one;
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
        if (look_into(files.searched.back(), files)) {
            break;
        }
    }
    return files;
}

GpushmFiles find_gpushm_files(const std::string &chosen) {
    const std::string program = resolved("/proc/self/exe");
    return find_gpushm_files(chosen, program.substr(0, program.find_last_of('/')));
}

bool holds_gpushm(const std::string &path) {
    struct stat status {};
    const bool is_folder = stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    return reading_error(is_folder ? path + "/" + kPluginName : path) == 0;
}

std::string missing_files_message(const GpushmFiles &files) {
    if (!files.obstacle.empty()) {
        return "gpushm cannot be loaded, " + files.obstacle +
               ": make it readable, reinstall gpushm, or give another folder by --plugin-dir=DIR";
    }
    std::string places;
    for (const std::string &directory : files.searched) {
        places += (places.empty() ? "" : ", ") + directory;
    }
    return std::string(kPluginName) + " and " + kPreloadName + " were not found in " + places +
           ": reinstall gpushm, or give their folder by --plugin-dir=DIR";
}

}  // namespace gpushm::tools
