// SPDX-License-Identifier: BSD-3-Clause
// Which file a program is, and which shared libraries the dynamic loader would give it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** One line of the loader's trace. */
struct LinkedLibrary {
    std::string name;  // as recorded in the file that needs it, "libucp.so.0"
    std::string path;  // empty: not found
};

struct ProgramFile {
    std::string path;
    bool is_elf = false;  // otherwise a script, or something the kernel will refuse
    /** The ELF class and machine are those of this process: its preload libraries can be ours. */
    bool same_machine = false;
    /** The dynamic loader named in the file; empty for a static program. */
    std::string interpreter;
    /** Runs with other rights than the caller's: the loader then ignores LD_PRELOAD. */
    bool changes_rights = false;
    /** What the loader would load, also through other libraries; nothing for a static program, a
     * script, or a program of another machine. */
    std::vector<LinkedLibrary> libraries;

    /** Null when there is none whose name begins with `prefix`. */
    const LinkedLibrary *find_library(const std::string &prefix) const;
};

/** Where execvp(3) would find `program`; empty when nowhere. `search_path`: the value of PATH, null
 * when unset. */
std::optional<std::string> find_program(const std::string &program, const char *search_path);

/** Looks at the file without running it. */
ProgramFile inspect_program(const std::string &path);

/** The same for a shared library, with the loader of this process. */
ProgramFile inspect_library(const std::string &path);

/** Reads what glibc's loader prints under LD_TRACE_LOADED_OBJECTS=1 (ld.so(8)). */
std::vector<LinkedLibrary> parse_loader_trace(const std::string &text);

}  // namespace gpushm::tools
