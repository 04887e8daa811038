// SPDX-License-Identifier: BSD-3-Clause
// Memory of one kind, filled and checked by whoever can reach it.
#pragma once

#include "driver.hpp"

#include <cstddef>
#include <cstdint>

namespace gpushm::perf {

/** `registered`: shared memory, page-locked afterwards, as transports between processes have it.
 * `pool`: device memory of the default memory pool. `imported`: device memory of another process.
 */
enum class MemoryKind { host, pinned, registered, device, pool, managed, imported };

/** GPU memory belongs to the device that is current when it is made. */
class Memory {
public:
    /** `driver` may be null for host memory, and outlives the object. Throws std::runtime_error
     * when there is no memory. */
    Memory(const Driver *driver, MemoryKind kind, size_t bytes);
    /** Imported memory, which belongs to somebody else who keeps it. */
    Memory(const Driver *driver, char *imported, size_t bytes);
    ~Memory();
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    char *address() const { return address_; }

    /** Bytes [first, first + bytes) get the pattern of `seed`. */
    void fill(size_t first, size_t bytes, uint64_t seed);

    /** Makes bytes different from every pattern that is checked for. */
    void clear(size_t first, size_t bytes);

    /** Throws std::runtime_error unless the bytes are those of the pattern from its `at` on. */
    void check(size_t first, size_t bytes, uint64_t seed, size_t at = 0) const;

    /** Moves pages of managed memory, contents kept: by writing each of them, or by a prefetch. */
    void place_on_cpu(size_t first, size_t bytes);
    void place_on_gpu(size_t first, size_t bytes);

private:
    void allocate();
    bool is_on_device() const {
        return kind_ == MemoryKind::device || kind_ == MemoryKind::pool ||
               kind_ == MemoryKind::imported;
    }
    void write(size_t first, const unsigned char *from, size_t bytes);
    const unsigned char *read(size_t first, size_t bytes) const;

    const Driver *driver_;
    MemoryKind kind_;
    size_t bytes_;
    char *address_ = nullptr;
};

}  // namespace gpushm::perf
