// SPDX-License-Identifier: BSD-3-Clause
// Events of the driver that are used again.
#pragma once

#include <cuda.h>

#include <vector>

namespace gpushm {

/** Events of one context, without timing. One thread at a time. */
class EventPool {
public:
    /** `id` is CudaDriver::context_id(). */
    EventPool(CUcontext context, unsigned long long id) : context_(context), id_(id) {}
    EventPool(const EventPool &) = delete;
    EventPool &operator=(const EventPool &) = delete;

    /** Null: the driver refuses it. */
    CUevent take();
    /** Null is allowed. */
    void give_back(CUevent event);
    /** Destroys those that were given back. The context must be current. */
    void destroy();

private:
    const CUcontext context_;
    const unsigned long long id_;
    std::vector<CUevent> free_;
};

}  // namespace gpushm
