// SPDX-License-Identifier: BSD-3-Clause
#include "operations_trial.hpp"

#include "pattern.hpp"
#include "watchdog.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace gpushm::mpi_test::operations {
namespace {

// Buffers start at different places relative to a page, all fit for any type.
size_t shift_of(uint64_t seed) {
    return 16 * (seed % 5);
}

}  // namespace

std::string text(const char *format, ...) {
    char buffer[400];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(buffer, sizeof(buffer), format, arguments);
    va_end(arguments);
    return buffer;
}

std::string error_text(int code) {
    char buffer[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, buffer, &length);
    return buffer;
}

Trial::Trial(std::string name, uint64_t number, const Group &group, const Placement &placement,
             MemoryPool &pool, int world_rank, bool quick)
    : name_(std::move(name)),
      number_(number),
      group_(group),
      placement_(placement),
      pool_(pool),
      world_rank_(world_rank),
      quick_(quick) {}

std::vector<int> Trial::roots() const {
    if (group_.size == 1) {
        return {0};
    }
    return {0, group_.size - 1};
}

void Trial::fail(const std::string &what) {
    if (failure_.empty()) {
        failure_ = what;
    }
}

Exchange::Exchange(Trial &trial, const std::string &what)
    : trial_(trial), what_(what), number_(trial.exchanges_++) {
    note("%s: %s", trial_.name_.c_str(), what_.c_str());
}

uint64_t Exchange::seed(int rank, int index) const {
    const uint64_t buffer = static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(index);
    return message_seed(message_seed(trial_.number_, number_), buffer);
}

// Different from the seeds of sources, and for each buffer.
uint64_t Exchange::blank_seed() const {
    return ~seed(trial_.group_.rank, static_cast<int>(buffers_.size()));
}

Items Exchange::add(MemoryKind kind, const char *label, const Layout &layout, int count,
                    uint64_t seed) {
    const Layout::Span span = layout.span(count);
    const size_t shift = shift_of(seed);
    const ptrdiff_t front = std::max<ptrdiff_t>(0, -span.first);
    const size_t origin = shift + static_cast<size_t>((front + 15) / 16 * 16);
    const size_t size = origin + static_cast<size_t>(std::max<ptrdiff_t>(0, span.end));
    buffers_.emplace_back(trial_.pool_, kind, size, origin, seed, label);
    return {buffers_.back(), layout, count};
}

Items Exchange::blank(Role role, const Layout &layout, int count) {
    const char *label = role == Role::source ? "send buffer" : "receive buffer";
    return add(trial_.kind(role), label, layout, count, blank_seed());
}

Items Exchange::on_host(const Layout &layout, int count) {
    return add(MemoryKind::host, "window", layout, count, blank_seed());
}

Items Exchange::source(const Layout &layout, int count, int index) {
    const Items items = blank(Role::source, layout, count);
    items.fill(0, sent(trial_.group_.rank, layout, count, index));
    return items;
}

Items Exchange::destination(const Layout &layout, int count) {
    return blank(Role::destination, layout, count);
}

Items Exchange::in_out(const Layout &layout, int count, int index) {
    const Items items = blank(Role::destination, layout, count);
    items.fill(0, sent(trial_.group_.rank, layout, count, index));
    return items;
}

Bytes Exchange::sent(int rank, const Layout &layout, int count, int index) const {
    Bytes stream(static_cast<size_t>(count) * layout.packed_size());
    fill_pattern(stream.data(), stream.size(), seed(rank, index));
    return stream;
}

void Exchange::run(const std::function<void()> &operation) {
    for (Buffer &buffer : buffers_) {
        buffer.upload();
    }
    operation();
    for (Buffer &buffer : buffers_) {
        const std::string wrong = buffer.check();
        if (!wrong.empty()) {
            fail(wrong);
        }
    }
}

void Exchange::fail(const std::string &what) {
    trial_.fail(what_ + ": " + what);
}

bool Exchange::require(int code, const char *call) {
    if (code != MPI_SUCCESS) {
        fail(std::string(call) + ": " + error_text(code));
    }
    return code == MPI_SUCCESS;
}

void Exchange::wait(MPI_Request &request) {
    require(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
}

void Exchange::wait_all(std::vector<MPI_Request> &requests) {
    std::vector<MPI_Status> statuses(requests.size());
    const int code =
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data());
    if (code != MPI_ERR_IN_STATUS) {
        require(code, "MPI_Waitall");
        return;
    }
    for (const MPI_Status &status : statuses) {
        require(status.MPI_ERROR, "MPI_Waitall");
    }
}

void Exchange::check_status(const MPI_Status &status, int source, int tag, MPI_Datatype type,
                            int count) {
    int got = -1;
    require(MPI_Get_count(&status, type, &got), "MPI_Get_count");
    if (status.MPI_SOURCE != source || status.MPI_TAG != tag || got != count) {
        fail(text("the status says source %d, tag %d, count %d, not %d, %d, %d", status.MPI_SOURCE,
                  status.MPI_TAG, got, source, tag, count));
    }
}

}  // namespace gpushm::mpi_test::operations
