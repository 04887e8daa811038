// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/log.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace gpushm {
namespace {

void default_sink(LogLevel level, const char *, unsigned, const char *, const char *message) {
    if (level == LogLevel::error || level == LogLevel::warn) {
        fprintf(stderr, "gpushm: %s\n", message);
    }
}

std::atomic<LogSink> current_sink{default_sink};

}  // namespace

void set_log_sink(LogSink sink) {
    current_sink.store(sink, std::memory_order_release);
}

void log_message(LogLevel level, const char *file, unsigned line, const char *function,
                 const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    current_sink.load(std::memory_order_acquire)(level, file, line, function, message);
}

}  // namespace gpushm
