// SPDX-License-Identifier: BSD-3-Clause
// SIMCUDA_TRACE.
#include "trace.hpp"

#include "settings.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {

namespace {

constexpr std::size_t kTextBytes = 256;
constexpr int kNotOpened = -2;

// No destructors, so that they can be used while a thread ends.
thread_local char values[kTextBytes];
thread_local std::size_t values_length = 0;

std::atomic<int> trace_file{kNotOpened};

int open_trace_file() {
    const std::string path = with_process_id(Settings::get().trace_file);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) {
        std::fprintf(stderr, "simcuda: cannot write SIMCUDA_TRACE to %s: %m\n", path.c_str());
    }
    return file;
}

// -1 if it cannot be opened.
int opened_trace_file() {
    int file = trace_file;
    if (file == kNotOpened) {
        const int mine = open_trace_file();
        if (trace_file.compare_exchange_strong(file, mine)) {
            return mine;
        }
        close(mine);  // another thread was first; `file` is what it opened
    }
    return file;
}

}  // namespace

bool tracing() {
    return !Settings::get().trace_file.empty();
}

void trace_value(const char *separator, std::uintptr_t value) {
    if (!tracing()) {
        return;
    }
    const bool number = value < std::uintptr_t{1} << 32;
    const int added =
        std::snprintf(values + values_length, kTextBytes - values_length,
                      number ? "%s%ju" : "%s0x%jx", separator, static_cast<std::uintmax_t>(value));
    if (added > 0 && values_length + static_cast<std::size_t>(added) < kTextBytes) {
        values_length += static_cast<std::size_t>(added);
    }
}

void write_trace(const char *function, CUresult result) {
    const int file = opened_trace_file();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const long long microseconds =
        std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    char line[kTextBytes + 128];
    const int length =
        std::snprintf(line, sizeof(line), "%lld.%06lld %d %ld %d %s%.*s\n", microseconds / 1000000,
                      microseconds % 1000000, getpid(), static_cast<long>(syscall(SYS_gettid)),
                      static_cast<int>(result), function, static_cast<int>(values_length), values);
    values_length = 0;
    if (file >= 0 && write(file, line, static_cast<std::size_t>(length)) != length) {
        std::fprintf(stderr, "simcuda: cannot write SIMCUDA_TRACE: %m\n");
    }
}

void forget_trace_file() {
    const int file = trace_file.exchange(kNotOpened);
    if (file >= 0) {
        close(file);
    }
}

}  // namespace simcuda
