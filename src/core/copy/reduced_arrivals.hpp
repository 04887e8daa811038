// SPDX-License-Identifier: BSD-3-Clause
// Messages whose numbers are reduced as they arrive.
#pragma once

#include "core/base/immovable.hpp"
#include "core/kernels/reduction_kernel.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace gpushm {

/** What is done with the numbers of a message: they are one operand of a reduction. */
struct ArrivalReduction {
    ReductionOperation operation;
    ElementType type;
    const void *own;    // the other operand
    bool own_is_first;  // it is the left one
    size_t count;       // numbers
};

/** A ReducedArrival, as the transport knows it. */
struct FoundArrival {
    ArrivalReduction reduction;
    uint64_t id;  // not 0; never used again
};

class ReducedArrival;

/** The messages of this process whose numbers may be reduced as they arrive. Thread safe. */
class ReducedArrivals {
public:
    static ReducedArrivals &instance();

    /** The reduction of a message of `bytes` bytes that arrives at `destination`. Empty: there is
     * none, and the message has to be copied. Costs a load where the process has none. */
    std::optional<FoundArrival> find(const void *destination, size_t bytes) const;
    /** The result of the reduction is at the destination, and nothing else is written there. */
    void set_reduced(uint64_t id);

private:
    friend ReducedArrival;

    template <typename Condition>
    ReducedArrival *find_if(const Condition &condition) const;

    mutable std::mutex mutex_;         // of all that follows, and of ReducedArrival::is_reduced_
    ReducedArrival *first_ = nullptr;  // of a list, so that to add one allocates nothing
    uint64_t last_id_ = 0;
    std::atomic<size_t> count_{0};  // written with the mutex held
};

/** While it lives, a message that arrives at an address may leave the result of a reduction there
 * instead of its numbers. It does so only where a kernel of this process can read the numbers in
 * the peer's memory; the result costs one launch then, and no copy. */
class ReducedArrival : Immovable {
public:
    /** The destination, the other operand and what arrives are arrays of one length, which do not
     * overlap. The first two are aligned memory of one GPU (is_of_same_gpu()), and stay allocated
     * until the message is received or given up. */
    ReducedArrival(void *destination, const ArrivalReduction &reduction);
    ~ReducedArrival();

    /** Whether the message has left the result. Else it has left its numbers. Ask when it has been
     * received. */
    bool is_reduced() const;

private:
    friend ReducedArrivals;

    const void *const destination_;
    const ArrivalReduction reduction_;
    uint64_t id_ = 0;
    ReducedArrival *next_ = nullptr;
    bool is_reduced_ = false;
};

}  // namespace gpushm
