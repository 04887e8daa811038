// SPDX-License-Identifier: BSD-3-Clause
// One alarm and the signals of a crash; the handlers use async-signal-safe calls only.
#include "watchdog.hpp"

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace gpushm::mpi_test {
namespace {

char prefix[64];
char last_note[256] = "start";
unsigned limit_seconds;

void say(const char *what) {
    const char *const parts[] = {prefix, what, last_note, "\n"};
    for (const char *part : parts) {
        if (write(STDERR_FILENO, part, std::strlen(part)) < 0) {
            return;
        }
    }
}

void on_alarm(int) {
    say("hangs in: ");
    _exit(3);
}

// The handler is installed with SA_RESETHAND: on return the instruction faults again and ends the
// process as if there had been no handler.
void on_crash(int) {
    say("crashes in: ");
}

}  // namespace

void start_watchdog(int rank, unsigned seconds) {
    std::snprintf(prefix, sizeof(prefix), "%s: rank %d ", program_invocation_short_name, rank);
    limit_seconds = seconds;

    struct sigaction action {};
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, nullptr);
    action.sa_handler = on_crash;
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    alarm(seconds);
}

void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(last_note, sizeof(last_note), format, arguments);
    va_end(arguments);
    alarm(limit_seconds);
}

void stop_watchdog() {
    alarm(0);
}

}  // namespace gpushm::mpi_test
