// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/standby_queue.hpp"

#include "core/standby/standby_unit.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace gpushm {
namespace {

// The kernel tells of all commands that it found together when it has copied all of them. So long
// the process waits that copies the bytes further. See doc/decisions/standby-batches.md.
constexpr size_t kMaxBatchBytes = 2u << 20;

/** An answer pays up to some hundred bytes: the CPU would wait for more units as long as for the
 * end of a plain copy. */
bool can_be_answer(const StandbyJob &copy) {
    const auto bits = reinterpret_cast<uintptr_t>(copy.source) | copy.length;
    return copy.cpu_may_write && copy.length <= kStandbyMostAnswer && bits % sizeof(uint32_t) == 0;
}

}  // namespace

bool StandbyQueue::make() {
    const CudaDriver *driver = CudaDriver::get();
    void *memory = mmap(nullptr, sizeof(StandbyControl), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    // No kernel has ever started for a forked child. Our pages, which the GPU knows, stay ours
    // (madvise(2)).
    if (madvise(memory, sizeof(StandbyControl), MADV_WIPEONFORK) != 0) {
        munmap(memory, sizeof(StandbyControl));
        return false;
    }
    CUdeviceptr address = 0;
    const bool registered =
        driver->mem_host_register(memory, sizeof(StandbyControl),
                                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
            CUDA_SUCCESS &&
        driver->mem_host_get_device_pointer(&address, memory, 0) == CUDA_SUCCESS;
    if (!registered || address != reinterpret_cast<CUdeviceptr>(memory)) {
        driver->mem_host_unregister(memory);
        munmap(memory, sizeof(StandbyControl));
        return false;
    }
    control_ = static_cast<StandbyControl *>(memory);
    return true;
}

/** Where the context has ended, the driver refuses, and the memory is not locked any more. */
void StandbyQueue::free() {
    CudaDriver::get()->mem_host_unregister(control_);
    munmap(control_, sizeof(*control_));
}

bool StandbyQueue::write(const StandbyJob &copy, StandbyTicket *ticket) {
    const uint32_t argument = static_cast<uint32_t>(copy.length) | flags_of(copy) |
                              (copy.to_own_gpu ? kStandbyOwnGpu : 0);
    if (next_ + standby_units(argument) - load_acquire(control_->done) > kStandbyUnits) {
        return false;
    }
    *ticket = {};
    if ((argument & kStandbyAnswer) != 0) {
        ticket->answer = next_answer();
        ticket->answer_length = copy.length;
        ticket->answer_to = copy.destination;
    }
    write_command(copy, argument | (ends_batch(copy) ? kStandbyEndsBatch : 0), ticket->answer);
    ticket->end = next_;
    ++given_;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

void StandbyQueue::mark_all_served() {
    __atomic_store_n(&control_->done, next_, __ATOMIC_RELAXED);
}

/** Which kind of command it is. */
uint32_t StandbyQueue::flags_of(const StandbyJob &copy) const {
    if (copy.rows.count > 1) {
        return kStandbyRows;
    }
    if (can_be_answer(copy) && !has_waiting()) {
        return kStandbyAnswer;
    }
    if (copy.cpu_may_read && copy.length <= kStandbyMostInline) {
        return kStandbyInline;
    }
    return reads_ahead(copy) ? kStandbyReadAhead : 0;
}

/** Counts the bytes that go through the host since the kernel was last told to tell of them. */
bool StandbyQueue::ends_batch(const StandbyJob &copy) {
    if (copy.cpu_may_read || copy.cpu_may_write) {
        batch_bytes_ += copy.length * copy.rows.count;
    }
    const bool ends = batch_bytes_ >= kMaxBatchBytes;
    batch_bytes_ = ends ? 0 : batch_bytes_;
    return ends;
}

/** The kernel need not read what rides in the next command. */
bool StandbyQueue::reads_ahead(const StandbyJob &copy) const {
    return copy.next.message != 0 && copy.next.length > kStandbyMostInline &&
           copy.next.length <= kStandbyMostAhead && next_ != 0;
}

/** The number of the command by which the source was read ahead; 0: none. */
uint32_t StandbyQueue::reader_of(const StandbyJob &copy) const {
    const bool is_read = copy.message != 0 && copy.message == read_ahead_.message &&
                         copy.source == read_ahead_.begin && copy.length <= read_ahead_.length;
    return is_read ? reader_ : 0;
}

void StandbyQueue::write_command(const StandbyJob &copy, uint32_t argument, uint32_t answer) {
    const uint32_t number = next_;
    const uint64_t destination =
        (argument & kStandbyAnswer) != 0 ? answer : reinterpret_cast<uint64_t>(copy.destination);
    write_unit({destination, argument, 1});
    if ((argument & kStandbyInline) != 0) {
        write_payload(static_cast<const unsigned char *>(copy.source), copy.length);
    } else {
        const auto rows = static_cast<uint32_t>(copy.rows.count);
        write_unit({reinterpret_cast<uint64_t>(copy.source),
                    (argument & kStandbyRows) != 0 ? rows : reader_of(copy), 0});
    }
    if ((argument & kStandbyRows) != 0) {
        write_unit({copy.rows.destination_pitch, static_cast<uint32_t>(copy.rows.source_pitch), 0});
    }
    if ((argument & kStandbyReadAhead) != 0) {
        write_unit({reinterpret_cast<uint64_t>(copy.next.begin),
                    static_cast<uint32_t>(copy.next.length), 0});
        read_ahead_ = copy.next;
        reader_ = number;
    }
}

/** No answer is under way. */
uint32_t StandbyQueue::next_answer() {
    if (++answers_ == 0) {
        memset(control_->answer, 0, sizeof(control_->answer));
        ++answers_;
    }
    return answers_;
}

void StandbyQueue::write_unit(StandbyUnit unit) {
    unit.tag |= next_ << 1;
    store_unit(control_->units[next_ % kStandbyUnits], unit);
    ++next_;
}

void StandbyQueue::write_payload(const unsigned char *payload, size_t length) {
    for (size_t offset = 0; offset < length; offset += kStandbyUnitPayload) {
        unsigned char bytes[kStandbyUnitPayload] = {};
        memcpy(bytes, payload + offset, std::min<size_t>(sizeof(bytes), length - offset));
        StandbyUnit unit = {};
        memcpy(&unit.word, bytes, sizeof(unit.word));
        memcpy(&unit.argument, bytes + sizeof(unit.word), sizeof(unit.argument));
        write_unit(unit);
    }
}

bool StandbyQueue::has_come(StandbyTicket *ticket) const {
    if (ticket->answer_length == 0) {
        return reached(load_acquire(control_->done), ticket->end);
    }
    size_t offset = ticket->answer_units * size_t{kStandbyUnitPayload};
    while (offset < ticket->answer_length) {
        const StandbyUnit unit = load_unit(control_->answer[ticket->answer_units]);
        if (unit.tag != ticket->answer) {
            return false;
        }
        memcpy(static_cast<unsigned char *>(ticket->answer_to) + offset, &unit,
               std::min<size_t>(kStandbyUnitPayload, ticket->answer_length - offset));
        offset += kStandbyUnitPayload;
        ++ticket->answer_units;
    }
    return true;
}

}  // namespace gpushm
