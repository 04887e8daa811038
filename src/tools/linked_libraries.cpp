// SPDX-License-Identifier: BSD-3-Clause
// Which libraries a program would be given: see linked_libraries.hpp.
#include "tools/linked_libraries.hpp"

#include "tools/subprocess.hpp"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

namespace gpushm::tools {

namespace {

constexpr const char *kDefaultSearchPath = "/bin:/usr/bin";  // execvp(3) without PATH

std::optional<ElfW(Ehdr)> read_header(std::ifstream &file) {
    ElfW(Ehdr) header{};
    if (!file.read(reinterpret_cast<char *>(&header), sizeof(header)) ||
        std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        return std::nullopt;
    }
    return header;
}

/** Whether code for this machine is in a file with that header: a running program tells. */
bool is_own_machine(const ElfW(Ehdr) & header) {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const auto own = read_header(file);
    return own && header.e_ident[EI_CLASS] == own->e_ident[EI_CLASS] &&
           header.e_ident[EI_DATA] == own->e_ident[EI_DATA] && header.e_machine == own->e_machine;
}

std::string read_interpreter(std::ifstream &file, const ElfW(Ehdr) & header) {
    constexpr size_t kLongestPath = 4096;
    for (unsigned i = 0; i < header.e_phnum && header.e_phentsize == sizeof(ElfW(Phdr)); ++i) {
        ElfW(Phdr) segment{};
        file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof(segment)));
        if (!file.read(reinterpret_cast<char *>(&segment), sizeof(segment))) {
            break;
        }
        if (segment.p_type != PT_INTERP || segment.p_filesz == 0 ||
            segment.p_filesz > kLongestPath) {
            continue;
        }
        std::string path(segment.p_filesz, '\0');
        file.seekg(static_cast<std::streamoff>(segment.p_offset));
        file.read(&path[0], static_cast<std::streamsize>(path.size()));
        return path.c_str();
    }
    return {};
}

/** The loader, not the program, is started, so that nothing of the program runs whatever it is. */
std::vector<LinkedLibrary> trace(const std::string &interpreter, const std::string &path) {
    if (interpreter.empty()) {
        return {};
    }
    const auto text = output_of({interpreter, path}, {"LD_TRACE_LOADED_OBJECTS=1"});
    return text ? parse_loader_trace(*text) : std::vector<LinkedLibrary>();
}

}  // namespace

const LinkedLibrary *ProgramFile::find_library(const std::string &prefix) const {
    for (const LinkedLibrary &library : libraries) {
        if (library.name.compare(0, prefix.size(), prefix) == 0) {
            return &library;
        }
    }
    return nullptr;
}

std::optional<std::string> find_program(const std::string &program, const char *search_path) {
    if (program.find('/') != std::string::npos) {
        return access(program.c_str(), F_OK) == 0 ? std::optional(program) : std::nullopt;
    }
    const std::string list = search_path != nullptr ? search_path : kDefaultSearchPath;
    std::istringstream directories(list + ":");
    for (std::string directory; std::getline(directories, directory, ':');) {
        // An empty one is the current directory.
        const std::string path = (directory.empty() ? "." : directory) + "/" + program;
        struct stat status {};
        if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
            access(path.c_str(), X_OK) == 0) {
            return path;
        }
    }
    return std::nullopt;
}

ProgramFile inspect_program(const std::string &path) {
    ProgramFile program;
    program.path = path;
    struct stat status {};
    if (stat(path.c_str(), &status) == 0) {
        program.changes_rights = ((status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid()) ||
                                 ((status.st_mode & S_ISGID) != 0 && status.st_gid != getegid());
    }
    std::ifstream file(path, std::ios::binary);
    const auto header = read_header(file);
    program.is_elf = header.has_value();
    program.same_machine = header && is_own_machine(*header);
    if (program.same_machine) {
        program.interpreter = read_interpreter(file, *header);
        program.libraries = trace(program.interpreter, path);
    }
    return program;
}

ProgramFile inspect_library(const std::string &path) {
    ProgramFile library;
    library.path = path;
    std::ifstream self("/proc/self/exe", std::ios::binary);
    if (const auto header = read_header(self)) {
        library.interpreter = read_interpreter(self, *header);
    }
    library.libraries = trace(library.interpreter, path);
    return library;
}

std::vector<LinkedLibrary> parse_loader_trace(const std::string &text) {
    std::vector<LinkedLibrary> libraries;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t arrow = line.find(" => ");
        const size_t begin = line.find_first_not_of(" \t");
        if (arrow == std::string::npos || begin >= arrow) {
            continue;  // the kernel's own object, or the loader: of no interest here
        }
        std::string path = line.substr(arrow + 4);
        const size_t address = path.rfind(" (0x");
        if (address != std::string::npos) {
            path.erase(address);
        }
        libraries.push_back(
            {line.substr(begin, arrow - begin), path == "not found" ? std::string() : path});
    }
    return libraries;
}

}  // namespace gpushm::tools
