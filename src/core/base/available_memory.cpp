// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/available_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace gpushm {
namespace {

/** The files of one version of cgroups. */
struct Version {
    const char *folder;  // of the hierarchy, below the mount
    const char *limit;
    const char *usage;
    const char *droppable;  // a word of memory.stat
};

constexpr Version kVersion1 = {"/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr Version kVersion2 = {"", "/memory.max", "/memory.current", "inactive_file"};

/** The number in a file; empty if there is none, or it is "max". */
std::optional<size_t> read_number(const std::string &path) {
    std::ifstream file(path);
    size_t number = 0;
    return file >> number ? std::optional<size_t>(number) : std::nullopt;
}

/** The number after a word of a file; 0 when the word is not there. */
size_t read_named_number(const std::string &path, const std::string &name) {
    std::ifstream file(path);
    std::string word;
    size_t number = 0;
    while (file >> word >> number) {
        if (word == name) {
            return number;
        }
        file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');  // units
    }
    return 0;
}

size_t left_in_cgroup(const Version &version, const std::string &folder) {
    const std::optional<size_t> limit = read_number(folder + version.limit);
    const std::optional<size_t> usage = read_number(folder + version.usage);
    if (!limit || !usage) {
        return SIZE_MAX;
    }
    const size_t held =
        *usage - std::min(*usage, read_named_number(folder + "/memory.stat", version.droppable));
    return *limit - std::min(*limit, held);
}

/** What a cgroup and its ancestors leave. In a container `path` may be the path on the node, while
 * `mount` is already the folder of the container. */
size_t left_on_path(const Version &version, const std::string &mount, std::string path) {
    size_t left = SIZE_MAX;
    const std::string root = mount + version.folder;
    for (bool more = true; more;) {
        left = std::min(left, left_in_cgroup(version, root + path));
        more = !path.empty() && path != "/";
        path.resize(path.find_last_of('/') != std::string::npos ? path.find_last_of('/') : 0);
    }
    return left;
}

/** Whether a list with commas has "memory" in it. */
bool names_memory(const std::string &controllers) {
    return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

size_t left_on_node() {
    constexpr char kFile[] = "/proc/meminfo";
    const size_t available_kib = read_named_number(kFile, "MemAvailable:");
    return available_kib != 0 ? (available_kib + read_named_number(kFile, "SwapFree:")) * 1024
                              : SIZE_MAX;
}

}  // namespace

size_t left_in_cgroups(const std::string &membership, const std::string &mount) {
    size_t left = SIZE_MAX;
    std::ifstream file(membership);
    for (std::string line; std::getline(file, line);) {
        // "4:memory:/path", or "0::/path" in version 2.
        std::istringstream fields(line);
        std::string number;
        std::string controllers;
        std::string path;
        std::getline(fields, number, ':');
        std::getline(fields, controllers, ':');
        std::getline(fields, path);
        if (names_memory(controllers)) {
            left = std::min(left, left_on_path(kVersion1, mount, path));
        } else if (number == "0" && controllers.empty()) {
            left = std::min(left, left_on_path(kVersion2, mount, path));
        }
    }
    return left;
}

size_t available_memory() {
    return std::min(left_on_node(), left_in_cgroups("/proc/self/cgroup", "/sys/fs/cgroup"));
}

}  // namespace gpushm
