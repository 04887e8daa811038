// SPDX-License-Identifier: BSD-3-Clause
// The core's log: one line per message, which goes to the program that embeds the core.
#pragma once

#include <atomic>

namespace gpushm {

enum class LogLevel { error, warn, debug };

/** Receives every message; may be called from any thread. */
using LogSink = void (*)(LogLevel level, const char *file, unsigned line, const char *function,
                         const char *message);

/** Until it is set, errors and warnings go to stderr. Set it before threads are started. */
void set_log_sink(LogSink sink);

void log_message(LogLevel level, const char *file, unsigned line, const char *function,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

}  // namespace gpushm

#define GPUSHM_LOG(level, ...) \
    ::gpushm::log_message(::gpushm::LogLevel::level, __FILE__, __LINE__, __func__, __VA_ARGS__)

/** Logs only the first time that the process reaches this place. */
#define GPUSHM_LOG_ONCE(level, ...)                               \
    do {                                                          \
        static std::atomic<bool> logged_{false};                  \
        if (!logged_.exchange(true, std::memory_order_relaxed)) { \
            GPUSHM_LOG(level, __VA_ARGS__);                       \
        }                                                         \
    } while (false)
