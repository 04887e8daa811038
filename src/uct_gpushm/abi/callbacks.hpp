// SPDX-License-Identifier: BSD-3-Clause
// Tables of callbacks in the layout of the running UCX, and functions for callbacks that gpushm
// does not implement.
#pragma once

#include "uct_gpushm/abi/layout.hpp"

#include <ucs/type/status.h>

#include <exception>

namespace gpushm::abi {

using AnyFunction = void (*)();

template <typename Function>
AnyFunction any(Function *function) {
    return reinterpret_cast<AnyFunction>(function);
}

inline ucs_status_t unsupported() {
    return UCS_ERR_UNSUPPORTED;
}
inline int answer_no() {
    return 0;
}
inline void do_nothing() {}

/** Runs `function` and returns `failure` if it throws, because no exception may reach UCX. The only
 * exception to expect is a failed allocation. The end of a thread by pthread_cancel(3) passes. */
template <typename Function, typename Result = ucs_status_t>
Result guarded(Function function, Result failure = UCS_ERR_NO_MEMORY) {
    try {
        return function();
    } catch (const std::exception &) {
        return failure;
    }
}

/** A table of callbacks as UCX declares it. Callbacks that are not set are `unsupported`. */
template <typename Op>
class CallbackTable {
public:
    explicit CallbackTable(const StructLayout<Op> &layout) : layout_(layout) {
        for (AnyFunction &slot : slots_) {
            slot = any(unsupported);
        }
    }

    /** Does nothing if the running UCX has no such callback. */
    template <typename Function>
    void set(Op op, Function *function) {
        store(slots_, layout_, op, any(function));
    }

    void *data() { return slots_; }

private:
    const StructLayout<Op> &layout_;
    AnyFunction slots_[kMaxCallbacks];
};

}  // namespace gpushm::abi
