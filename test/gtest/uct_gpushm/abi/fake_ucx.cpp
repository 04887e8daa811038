// SPDX-License-Identifier: BSD-3-Clause
// A library that looks like a UCX that gpushm does not serve, because of its version, its
// statistics or a missing function. Built once for each case.
#include <cstdarg>
#include <cstdio>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

char lines[2048];
size_t length;

}  // namespace

EXPORTED int ucs_global_opts[8];
int ucs_global_opts[8] = {3};  // log level: warnings

EXPORTED void ucs_log_dispatch(const char *, unsigned, const char *, int, const void *,
                               const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    length += static_cast<size_t>(
        std::vsnprintf(lines + length, sizeof(lines) - length, format, arguments));
    va_end(arguments);
    length += static_cast<size_t>(std::snprintf(lines + length, sizeof(lines) - length, "\n"));
}

/** The log, one line for each message. */
EXPORTED const char *fake_ucx_log() {
    return lines;
}

EXPORTED void uct_md_open() {}

#if FAKE_MINOR > 10  // before, components were registered in another way
EXPORTED void uct_component_register(void *) {}
#endif

EXPORTED void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release) {
    *major = FAKE_MAJOR;
    *minor = FAKE_MINOR;
    *release = 0;
}

#ifdef FAKE_STATISTICS
EXPORTED void ucs_stats_node_alloc() {}
#endif
