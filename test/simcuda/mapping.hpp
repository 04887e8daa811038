// SPDX-License-Identifier: BSD-3-Clause
// Address ranges of this process that hold simulated memory.
//
// They are made by system calls that do not go through the C library's mmap and munmap: libraries
// which watch those functions do not see the real driver's memory come and go either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace simcuda {

// Granularity of device memory.
constexpr std::size_t kPageBytes = 2 << 20;

constexpr std::size_t round_to_page(std::size_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// An address range, unmapped when destroyed.
class Mapping {
public:
    ~Mapping();
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    // All return null if there is no memory. `bytes` is a multiple of kPageBytes.

    // Host memory of this process.
    static std::unique_ptr<Mapping> host(std::size_t bytes);

    // Part of a file, readable and writable.
    static std::unique_ptr<Mapping> of_file(int file, std::size_t offset, std::size_t bytes);

    // Another view of what is mapped at `address`, if that is one shared mapping; `bytes` is a
    // multiple of 4096.
    static std::unique_ptr<Mapping> duplicate(void *address, std::size_t bytes);

    // An address range on a multiple of kPageBytes, for part of a file, that faults when the CPU
    // touches it. An address that was given back recently is taken again if it can be, as the real
    // driver does.
    static std::unique_ptr<Mapping> faulting(int file, std::size_t offset, std::size_t bytes);

    // Addresses without memory, which fault, on a multiple of kPageBytes and of `alignment` (0 or a
    // power of two); reused as those of faulting(). `bytes` is a multiple of 4096.
    static std::unique_ptr<Mapping> reserved(std::size_t bytes, std::size_t alignment);

    // Puts the begin of a file there, readable and writable; false if that fails.
    bool fill(std::size_t offset, int file, std::size_t bytes);

    // Takes it away again.
    void clear(std::size_t offset, std::size_t bytes);

    char *address() const { return address_; }
    std::size_t bytes() const { return bytes_; }

private:
    Mapping(void *address, std::size_t bytes)
        : address_(static_cast<char *>(address)), bytes_(bytes) {}

    char *const address_;
    const std::size_t bytes_;
    bool reusable_ = false;
};

}  // namespace simcuda
