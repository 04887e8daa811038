// SPDX-License-Identifier: BSD-3-Clause
// A buffer of one memory kind in which messages are placed between canaries.
#pragma once

#include "cuda_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpushm::mpi_test {

// One message in a buffer: `size` bytes with the pattern of `seed` at `offset`, received into
// `capacity` bytes.
struct Message {
    size_t size;
    size_t offset;    // from a page boundary: 0, 1, 3 ... make misaligned addresses
    size_t capacity;  // >= size; what is beyond the message must stay as it was
    uint64_t seed;
};

class GuardedBuffer {
public:
    static constexpr size_t kGuardBytes = 4096;  // before and after each message
    static constexpr size_t kMaxOffset = 64;

    // Room for messages up to `max_capacity` bytes. `driver` may be null for host memory and must
    // outlive the buffer. Throws std::runtime_error when there is no memory.
    GuardedBuffer(CudaDriver *driver, MemoryKind kind, size_t max_capacity);
    ~GuardedBuffer();
    GuardedBuffer(const GuardedBuffer &) = delete;
    GuardedBuffer &operator=(const GuardedBuffer &) = delete;

    MemoryKind kind() const { return kind_; }

    // Where the message starts, to be given to MPI.
    void *address(const Message &message) const;

    // Writes the pattern of the message.
    void prepare_source(const Message &message);

    // Writes canaries around the message and poison in its place.
    void prepare_destination(const Message &message);

    // Checks every byte of message, rest and canaries. Returns what is wrong first, "" if nothing
    // is.
    std::string check_destination(const Message &message) const;

private:
    void write(unsigned char *to, const unsigned char *from, size_t size, uint64_t seed);
    void read(unsigned char *to, const unsigned char *from, size_t size, uint64_t seed) const;

    CudaDriver *driver_;
    MemoryKind kind_;
    size_t mapped_bytes_;
    unsigned char *base_ = nullptr;
};

}  // namespace gpushm::mpi_test
