// SPDX-License-Identifier: BSD-3-Clause
// A buffer of one memory kind with a model of its content on the host: what is in it before an
// operation, and what has to be in it afterwards. Every byte is checked, also those that the
// operation has to leave alone, and some in front of and behind the buffer.
#pragma once

#include "cuda_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gpushm::mpi_test::operations {

// Memory that is used again by later buffers: an allocation takes longer than most operations.
class MemoryPool {
public:
    // `driver` may be null for host memory and must outlive the pool.
    explicit MemoryPool(CudaDriver *driver) : driver_(driver) {}
    ~MemoryPool();
    MemoryPool(const MemoryPool &) = delete;
    MemoryPool &operator=(const MemoryPool &) = delete;

    CudaDriver *driver() const { return driver_; }

    // At least `size` bytes. Throws std::runtime_error when there is no memory.
    unsigned char *take(MemoryKind kind, size_t size);
    void put_back(MemoryKind kind, size_t size, unsigned char *memory);

private:
    using Key = std::pair<MemoryKind, size_t>;

    CudaDriver *driver_;
    std::map<Key, std::vector<unsigned char *>> free_;
};

class Buffer {
public:
    // `size` bytes, of which byte `origin` is the one that messages name as 0. All bytes start as
    // the pattern of `seed`, which stays unless one of the functions below says otherwise.
    Buffer(MemoryPool &pool, MemoryKind kind, size_t size, size_t origin, uint64_t seed,
           std::string label);
    ~Buffer();
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    // Positions count from the origin.
    void *address(ptrdiff_t position) const { return memory_ + index(position); }

    // The content before the operation.
    const unsigned char *content(ptrdiff_t position) const {
        return before_.data() + index(position);
    }

    // What the operation finds, and leaves.
    void fill(ptrdiff_t position, const unsigned char *data, size_t size);

    // What the operation writes; before, there is something else at each byte.
    void expect(ptrdiff_t position, const unsigned char *data, size_t size);

    // What the operation writes in place of what it finds.
    void change(ptrdiff_t position, const unsigned char *data, size_t size);

    // Bytes that may have any content after the operation.
    void ignore(ptrdiff_t position, size_t size);

    // Writes the content before the operation into the memory.
    void upload();

    // Compares the memory with what has to be in it. Returns what is wrong first, "" if nothing is.
    std::string check();

private:
    size_t index(ptrdiff_t position) const { return static_cast<size_t>(start_ + position); }
    bool by_driver(unsigned use) const;

    MemoryPool &pool_;
    MemoryKind kind_;
    ptrdiff_t start_;  // where the origin lies in the images and in the memory
    uint64_t seed_;
    std::string label_;
    std::vector<unsigned char> before_;
    std::vector<unsigned char> after_;
    std::vector<std::pair<size_t, size_t>> ignored_;  // index, size
    unsigned char *memory_;
};

}  // namespace gpushm::mpi_test::operations
