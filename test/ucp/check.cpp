// SPDX-License-Identifier: BSD-3-Clause
#include "check.hpp"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace gpushm::ucp_test {
namespace {

std::string current_activity;

}  // namespace

void set_activity(const std::string &activity) {
    current_activity = activity;
    static const bool tracing = getenv("GPUSHM_TEST_TRACE") != nullptr;
    if (tracing) {
        fprintf(stderr, "%d: %s\n", static_cast<int>(getpid()), activity.c_str());
    }
}

const std::string &activity() {
    return current_activity;
}

void fail(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "FAILED (%d) %s: %s\n", static_cast<int>(getpid()), current_activity.c_str(),
            text);
    fflush(nullptr);  // UCX logs to stdout
    // Without destructors: a broken UCX may hang in them.
    _exit(1);
}

void skip(const char *reason) {
    fprintf(stderr, "skipped: %s\n", reason);
    fflush(nullptr);
    _exit(77);
}

void require(ucs_status_t status, const char *what) {
    if (status != UCS_OK) {
        fail("%s: %s", what, ucs_status_string(status));
    }
}

}  // namespace gpushm::ucp_test
