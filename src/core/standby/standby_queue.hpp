// SPDX-License-Identifier: BSD-3-Clause
// The commands of a standby kernel: the CPU's side of standby_protocol.hpp.
#pragma once

#include "core/base/copy_rows.hpp"
#include "core/base/message_payload.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/standby_protocol.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace gpushm {

/** Whether one command can describe rows of `length` bytes. */
inline bool fit_command(const CopyRows &rows, size_t length) {
    const auto is_pitch = [length](size_t pitch) {
        return pitch >= length && pitch <= kStandbyMostPitch;
    };
    return rows.count == 1 ? length <= kStandbyLength
                           : length <= kStandbyMostRowBytes / rows.count &&
                                 is_pitch(rows.destination_pitch) && is_pitch(rows.source_pitch);
}

/** A copy for the kernel. Kernels of the context must reach `destination` and `source` as long as
 * the copy is under way, unless the CPU touches them: a wrong address destroys the context. */
struct StandbyJob {
    void *destination;
    const void *source;
    size_t length;  // > 0; of a row
    /** The source is host memory that may be read now and changed afterwards. */
    bool cpu_may_read = false;
    /** The destination is host memory that StandbyKernel::state() may write. */
    bool cpu_may_write = false;
    /** The destination is memory of the context's GPU. */
    bool to_own_gpu = false;
    /** The message of which the source is payload; 0: of none. */
    uint64_t message = 0;
    /** The bytes that are copied next, most likely; kernels reach them, too. The kernel reads them
     * while the CPU learns that this copy has ended, so that the next copy does not wait for the
     * bus. It may read them until it has left (StandbyKernels::Absence). */
    MessagePayload next = {};
    /** Of several rows, only to_own_gpu of the other members counts. */
    CopyRows rows = {};
};

/** Whether numbers of units or of launches, which wrap, are in this order. */
inline bool reached(uint32_t number, uint32_t end) {
    return static_cast<int32_t>(number - end) >= 0;
}

template <typename Word>
Word load_acquire(const Word &word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

/** A copy that a kernel was given. */
struct StandbyTicket {
    uint32_t end = 0;  // the first unit behind its command
    // Of an answer:
    uint32_t answer = 0;        // its number
    uint32_t answer_units = 0;  // that were taken
    size_t answer_length = 0;   // bytes; 0: it is none
    void *answer_to = nullptr;
};

/** Writes commands and sees which ones are served. Thread safe where nothing else is said. */
class StandbyQueue {
public:
    StandbyQueue() = default;
    StandbyQueue(const StandbyQueue &) = delete;
    StandbyQueue &operator=(const StandbyQueue &) = delete;

    /** Maps what CPU and kernel share, page-locked, where the GPU finds it at the address that it
     * has here. False: the driver or the system refuses it. Once, before all else. */
    bool make();
    /** Unmaps it. The context of make() is current, or has ended. Once, after all else. */
    void free();
    /** Null: make() was not called, or has failed. */
    StandbyControl *control() const { return control_; }

    /** Held by whoever calls the functions of the next group. */
    std::mutex &mutex() { return mutex_; }
    /** Writes a command. False: there is no room. The rows fit a command. */
    bool write(const StandbyJob &copy, StandbyTicket *ticket);
    /** The unit that is written next. */
    uint32_t next() const { return next_; }
    /** Before a launch, when no kernel is there. */
    void mark_all_served();
    uint64_t count_given() const { return given_; }

    /** Whether commands were given of which nobody has seen the end. */
    bool has_waiting() const { return waiting_.load(std::memory_order_acquire) != 0; }
    /** Somebody has seen the end of a command, or will not ask for it any more. */
    void end_command() { waiting_.fetch_sub(1, std::memory_order_release); }
    /** Whether a command is served. Takes the units of an answer that have come. One thread at a
     * time for one ticket. */
    bool has_come(StandbyTicket *ticket) const;

private:
    uint32_t flags_of(const StandbyJob &copy) const;
    bool ends_batch(const StandbyJob &copy);
    bool reads_ahead(const StandbyJob &copy) const;
    uint32_t reader_of(const StandbyJob &copy) const;
    void write_command(const StandbyJob &copy, uint32_t argument, uint32_t answer);
    void write_unit(StandbyUnit unit);
    void write_payload(const unsigned char *payload, size_t length);
    uint32_t next_answer();

    StandbyControl *control_ = nullptr;  // constant after make()
    std::atomic<uint32_t> waiting_{0};   // commands whose end nobody has seen yet

    std::mutex mutex_;
    uint32_t next_ = 1;  // the unit that is written next
    // Number of the last answer. The numbers begin again, at 1, after the first 100.
    uint32_t answers_ = UINT32_MAX - 100;
    // Read ahead by the command of number reader_, if the kernel that has served it is still there.
    MessagePayload read_ahead_;
    uint32_t reader_ = 0;
    size_t batch_bytes_ = 0;  // through the host, since a command that ends a batch
    uint64_t given_ = 0;      // commands
};

}  // namespace gpushm
