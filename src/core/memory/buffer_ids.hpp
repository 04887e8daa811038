// SPDX-License-Identifier: BSD-3-Clause
// Which buffers of the driver were met before, without a lock.
#pragma once

#include <atomic>
#include <cstddef>

namespace gpushm {

/** Buffer ids are unique for the life of the process (CUDA driver API manual,
 * CU_POINTER_ATTRIBUTE_BUFFER_ID), so a remembered id never means another allocation. Of two ids
 * that share a slot the older one is forgotten. 0 is no id and never contained. Thread safe; orders
 * no other memory. */
class BufferIds {
public:
    bool contains(unsigned long long id) {
        return id != 0 && slot(id).load(std::memory_order_relaxed) == id;
    }
    void insert(unsigned long long id) { slot(id).store(id, std::memory_order_relaxed); }
    void erase(unsigned long long id) {
        if (contains(id)) {
            slot(id).store(0, std::memory_order_relaxed);
        }
    }

private:
    static constexpr size_t kSlots = 4096;
    using Slot = std::atomic<unsigned long long>;
    Slot &slot(unsigned long long id) { return slots_[id % kSlots]; }
    Slot slots_[kSlots] = {};
};

}  // namespace gpushm
