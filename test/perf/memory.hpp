// SPDX-License-Identifier: BSD-3-Clause
// Memory of one kind, filled and checked by whoever can reach it.
#pragma once

#include "driver.hpp"
#include "memory_kind.hpp"

#include <cstddef>
#include <cstdint>

namespace gpushm::perf {

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

    /** Contents of any other form. What is read stays there until the next call of any object. */
    void write(size_t first, const unsigned char *from, size_t bytes);
    const unsigned char *read(size_t first, size_t bytes) const;

private:
    void allocate();

    const Driver *driver_;
    MemoryKind kind_;
    size_t bytes_;
    char *address_ = nullptr;
};

}  // namespace gpushm::perf
