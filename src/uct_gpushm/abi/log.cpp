// SPDX-License-Identifier: BSD-3-Clause
// Writes to the log of the running UCX.
#include "uct_gpushm/abi/running.hpp"

#include <cstdarg>
#include <cstdio>

namespace gpushm::abi {
namespace {

// ucs_global_opts begins with the ucs_log_component_config_t of the default component, which begins
// with its level (src/ucs/config/global_opts.h and types.h, UCX 1.13 to 1.23).
bool is_enabled(const Running &ucx, ucs_log_level_t level) {
    return ucx.global_opts == nullptr || static_cast<int>(level) <= load<int>(ucx.global_opts, 0);
}

}  // namespace

void use_log_of(const UcxLibrary &ucx, Running &target) {
    target.global_opts = ucx.variable("ucs_global_opts");
    target.symbols.log_dispatch =
        reinterpret_cast<decltype(target.symbols.log_dispatch)>(ucx.symbol("ucs_log_dispatch"));
}

void write_log(const Running &target, ucs_log_level_t level, const std::string &line) {
    if (!is_enabled(target, level)) {
        return;
    }
    if (target.global_opts == nullptr || target.symbols.log_dispatch == nullptr) {
        std::fprintf(stderr, "%s\n", line.c_str());
        return;
    }
    target.symbols.log_dispatch("gpushm", 0, "gpushm", level, target.global_opts, "%s",
                                line.c_str());
}

void log_line(ucs_log_level_t level, const char *format, ...) {
    const Running &ucx = running();
    if (!is_enabled(ucx, level)) {
        return;
    }
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    write_log(ucx, level, line);
}

}  // namespace gpushm::abi
