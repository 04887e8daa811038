// SPDX-License-Identifier: BSD-3-Clause
// Finds the file of a program, and the shared libraries that the dynamic loader would load for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** A library in the loader's trace. */
struct LinkedLibrary {
    std::string name;  // as in the file that needs it: "libucp.so.0"
    std::string path;  // empty: not found
};

struct ProgramFile {
    std::string path;
    bool is_elf = false;  // otherwise a script, or no program
    /** Whether ELF class and machine are those of this process, so that it can load gpushm's
     * libraries. */
    bool same_machine = false;
    /** The dynamic loader that the file names. Empty: a static program. */
    std::string interpreter;
    /** Whether it runs with other rights than the caller's. The loader then ignores LD_PRELOAD. */
    bool changes_rights = false;
    /** All libraries that the loader would load, directly or for other libraries. Empty for a
     * static program, a script, or a program of another machine. */
    std::vector<LinkedLibrary> libraries;

    /** The first library whose name begins with `prefix`. Null: there is none. */
    const LinkedLibrary *find_library(const std::string &prefix) const;
};

/** The file that execvp(3) would run for `program`. Empty: none. `search_path`: the value of PATH;
 * null: not set. */
std::optional<std::string> find_program(const std::string &program, const char *search_path);

/** Examines a program without running it. */
ProgramFile inspect_program(const std::string &path);

/** Examines a shared library, with the loader of this process. */
ProgramFile inspect_library(const std::string &path);

/** Reads what glibc's loader prints under LD_TRACE_LOADED_OBJECTS=1 (ld.so(8)). */
std::vector<LinkedLibrary> parse_loader_trace(const std::string &text);

}  // namespace gpushm::tools
