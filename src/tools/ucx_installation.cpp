// SPDX-License-Identifier: BSD-3-Clause
// Which UCX a program will run on: see ucx_installation.hpp.
#include "tools/ucx_installation.hpp"

#include "tools/environment.hpp"
#include "tools/paths.hpp"
#include "tools/subprocess.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <vector>

namespace gpushm::tools {

namespace {

std::string path_of_symbol(void *symbol) {
    Dl_info info{};
    if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) {
        return {};
    }
    return resolved(info.dli_fname);
}

bool has_cuda_module(const std::string &libucs_path) {
    const std::string directory = libucs_path.substr(0, libucs_path.find_last_of('/'));
    const char *module_directory = getenv("UCX_MODULE_DIR");
    return !matches_of(directory + "/ucx/libuct_cuda.so*").empty() ||
           (module_directory != nullptr &&
            !matches_of(std::string(module_directory) + "/libuct_cuda.so*").empty());
}

/** Runs in a child: loads the libraries and describes them in lines. Nothing on failure. */
std::string describe(const std::vector<std::string> &libraries) {
    void *libucp = nullptr;
    for (const std::string &library : libraries) {
        libucp = dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    }
    if (libucp == nullptr) {
        return {};
    }
    // dlsym with a handle also searches the libraries that it needs, so libucp finds libucs.
    const auto get_version = reinterpret_cast<void (*)(unsigned *, unsigned *, unsigned *)>(
        dlsym(libucp, "ucp_get_version"));
    void *const libucs_symbol = dlsym(libucp, "ucs_global_opts_init");
    if (get_version == nullptr || libucs_symbol == nullptr) {
        return {};
    }
    Version version;
    get_version(&version.major, &version.minor, &version.release);
    // Compiled only with statistics: src/ucs/stats/stats.c, ENABLE_STATS.
    const bool statistics = dlsym(libucp, "ucs_stats_node_alloc") != nullptr;
    return path_of_symbol(reinterpret_cast<void *>(get_version)) + "\n" + to_string(version) +
           "\n" + (statistics ? "y" : "n") + "\n" +
           (has_cuda_module(path_of_symbol(libucs_symbol)) ? "y" : "n") + "\n";
}

std::optional<UcxInstallation> probe(const std::vector<std::string> &libraries) {
    const auto description = call_in_child([&] { return describe(libraries); });
    if (!description) {
        return std::nullopt;
    }
    const std::vector<std::string> lines = split(*description, "\n");
    if (lines.size() != 4) {
        return std::nullopt;
    }
    UcxInstallation ucx;
    ucx.libucp_path = lines[0];
    ucx.version = parse_version(lines[1]).value_or(Version{});
    ucx.statistics = lines[2] == "y";
    ucx.own_cuda = lines[3] == "y";
    return ucx;
}

}  // namespace

Loading loading_of(const Version &ucx) {
    return older_than(ucx, 1, 22) ? Loading::preload : Loading::plugin_path;
}

std::string why_not_served(const UcxInstallation &ucx) {
    return abi::why_not_served(ucx.version, ucx.statistics, ucx.libucp_path);
}

std::optional<UcxInstallation> find_linked_ucx(const ProgramFile &program) {
    // In the order in which they need each other, and by their paths: the program's own search path
    // (RUNPATH) does not count for the libraries that these need.
    std::vector<std::string> libraries;
    for (const char *name : {"libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0"}) {
        if (const LinkedLibrary *library = program.find_library(name)) {
            libraries.push_back(library->path);
        }
    }
    const LinkedLibrary *libucp = program.find_library("libucp.so.0");
    if (libucp == nullptr || libucp->path.empty()) {
        return std::nullopt;
    }
    return probe(libraries);
}

std::optional<UcxInstallation> find_default_ucx() {
    return probe({"libucp.so.0"});
}

}  // namespace gpushm::tools
