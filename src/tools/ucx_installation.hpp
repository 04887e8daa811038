// SPDX-License-Identifier: BSD-3-Clause
// The UCX that a program will use, and whether gpushm serves it.
#pragma once

#include "tools/linked_libraries.hpp"
#include "tools/version.hpp"

#include <optional>
#include <string>

namespace gpushm::tools {

struct UcxInstallation {
    std::string libucp_path;  // with symbolic links resolved
    Version version;
    bool statistics = false;  // built with --enable-stats
    bool own_cuda = false;    // it has a CUDA transport module
};

/** How a UCX loads gpushm. */
enum class Loading {
    plugin_path,  // UCX_PLUGIN_PATH
    preload,      // LD_PRELOAD
};

/** UCX reads UCX_PLUGIN_PATH from 1.22 on. Earlier releases load only modules that were listed when
 * they were built (src/ucs/sys/module.c of 1.21 and 1.22). */
Loading loading_of(const Version &ucx);

/** Why gpushm cannot serve this UCX and what to do, without a final full stop. Empty: it can. */
std::string why_not_served(const UcxInstallation &ucx);

/** The UCX that `program` is linked to, directly or through other libraries. Empty: none, or it
 * cannot be loaded. */
std::optional<UcxInstallation> find_linked_ucx(const ProgramFile &program);

/** The UCX that dlopen("libucp.so.0") finds: LD_LIBRARY_PATH, then the system's cache. */
std::optional<UcxInstallation> find_default_ucx();

}  // namespace gpushm::tools
