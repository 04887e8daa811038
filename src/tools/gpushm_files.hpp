// SPDX-License-Identifier: BSD-3-Clause
// Where gpushm's own libraries lie.
#pragma once

#include <string>
#include <vector>

namespace gpushm::tools {

inline constexpr const char *kPluginName = "libuct_gpushm.so.0";
inline constexpr const char *kPreloadName = "libgpushm_preload.so";

struct GpushmFiles {
    std::string directory;  // empty: not found
    /** Where it was looked for, in this order. */
    std::vector<std::string> searched;
    /** Why the last one, which has one of the libraries, cannot be used: "PATH: Permission denied".
     */
    std::string obstacle = {};

    std::string plugin() const { return directory + "/" + kPluginName; }
    std::string preload() const { return directory + "/" + kPreloadName; }
};

/** Finds the first folder that holds one of the libraries, which has to hold both: `chosen` if not
 * empty, otherwise beside this program as it was installed or moved (BINDIR/../lib*), otherwise
 * where it was configured to be. */
GpushmFiles find_gpushm_files(const std::string &chosen);

/** The same for a program in the folder `program_directory`. */
GpushmFiles find_gpushm_files(const std::string &chosen, const std::string &program_directory);

/** Whether `path` is a library that can be loaded, or a folder with gpushm's plugin. */
bool holds_gpushm(const std::string &path);

/** One line that says what is missing and what to do. */
std::string missing_files_message(const GpushmFiles &files);

}  // namespace gpushm::tools
