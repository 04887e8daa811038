// SPDX-License-Identifier: BSD-3-Clause
// The single operations of which messages are made, each with memory of its own.
#pragma once

#include "copy_queue.hpp"
#include "driver.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace gpushm::perf {

/** Every call returns when the bytes are where they belong, as the calling process sees it. */
class RawOperation {
public:
    virtual ~RawOperation() = default;

    /** Whether it can do messages of `size` bytes; the others are left out. */
    virtual bool takes(size_t) const { return true; }

    /** One of `size` bytes. */
    virtual void single(size_t size) = 0;

    /** window_of(size) of them, started one after the other. */
    virtual void window(size_t size) = 0;

    /** The same in as few driver calls as can be; false where that is not possible. */
    virtual bool batch(size_t) { return false; }

    /** How often a caller may choose how the copies of the two above are cut up; 1: no choice. */
    virtual unsigned variants(size_t) const { return 1; }
    virtual void choose_variant(unsigned) {}

    /** Makes what the next copies of this size write different from what they are to write. */
    virtual void clear(size_t size) = 0;

    /** Throws std::runtime_error unless they have written it. `slots`: how many messages. */
    virtual void check(size_t size, unsigned slots) = 0;
};

/** What an operation needs. */
struct RawSettings {
    const Driver *driver;  // null: memcpy only
    int device;            // that of the calling process
    int other_device;      // that of the peer
    int other_cpu;         // for the peer's process; negative: any
    size_t bytes;          // pool_bytes of all sizes
};

/** `name`: memcpy, d2h, h2d, peer (a pull from another process's memory on `other_device`), staged
 * (from `device` through shared memory to `other_device`), or one of standby_operations(). Throws
 * std::runtime_error. */
std::unique_ptr<RawOperation> make_raw_operation(const std::string &name,
                                                 const RawSettings &settings);

}  // namespace gpushm::perf
