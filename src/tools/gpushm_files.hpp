// SPDX-License-Identifier: BSD-3-Clause
// Finds gpushm's own libraries.
#pragma once

#include <string>
#include <vector>

namespace gpushm::tools {

inline constexpr const char *kPluginName = "libuct_gpushm.so.0";
inline constexpr const char *kPreloadName = "libgpushm_preload.so";

struct GpushmFiles {
    std::string directory;  // empty: not found
    /** The folders that were searched, in their order. */
    std::vector<std::string> searched;
    /** Why the last folder, which has one of the libraries, cannot be used: "PATH: Permission
     * denied".
     */
    std::string obstacle = {};

    std::string plugin() const { return directory + "/" + kPluginName; }
    std::string preload() const { return directory + "/" + kPreloadName; }
};

/** Finds the first folder with one of the libraries; it has to have both. Searches `chosen` if that
 * is not empty; otherwise the folder beside this program (BINDIR/../lib*), which may have been
 * moved, then the configured folder. */
GpushmFiles find_gpushm_files(const std::string &chosen);

/** find_gpushm_files() of a program in the folder `program_directory`. */
GpushmFiles find_gpushm_files(const std::string &chosen, const std::string &program_directory);

/** Whether `path` is a library that can be loaded, or a folder with gpushm's plugin. */
bool holds_gpushm(const std::string &path);

/** One line: what is missing, and what to do. */
std::string missing_files_message(const GpushmFiles &files);

}  // namespace gpushm::tools
