// SPDX-License-Identifier: BSD-3-Clause
// Memory from each allocator that a program can use, and messages placed in it between canaries.
#pragma once

#include "cuda_api.hpp"
#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpushm::ucp_test {

enum class Allocator {
    host,         // malloc
    pinned,       // cuMemHostAlloc
    registered,   // malloc and cuMemHostRegister
    device,       // cuMemAlloc
    vmm,          // cuMemCreate and cuMemMap, without a handle type to export
    vmm_shared,   // the same, which can be exported as a file descriptor
    pool,         // cuMemAllocAsync
    managed_cpu,  // cuMemAllocManaged, the pages on the CPU
    managed_gpu,  // the pages on the GPU
};

const char *to_string(Allocator allocator);

/** All that this driver has; names what it lacks on stdout, once. Host memory needs no driver. */
std::vector<Allocator> all_allocators();

/** `--KEY=device,host` or all; those that this driver lacks are left out. */
std::vector<Allocator> allocators_of(const Options &options, const std::string &key = "kinds");

class Allocation {
public:
    /** Of the current context. Fails the test when there is no memory. */
    Allocation(Allocator allocator, size_t bytes);
    ~Allocation();
    Allocation(const Allocation &) = delete;
    Allocation &operator=(const Allocation &) = delete;

    Allocator allocator() const { return allocator_; }
    unsigned char *data() const { return data_; }
    size_t bytes() const { return bytes_; }

    /** Seen by any stream and by the CPU when it returns; pages of managed memory are then where
     * the allocator says. */
    void write(size_t offset, const void *from, size_t bytes);
    void read(size_t offset, void *to, size_t bytes) const;
    /** Whether only the driver can touch it. */
    bool is_device_memory() const;

private:
    void map_physical_memory(bool exportable);
    void move_pages() const;

    Allocator allocator_;
    size_t bytes_;
    CUcontext context_ = nullptr;  // it was allocated in; null for host memory
    unsigned char *data_ = nullptr;
    size_t mapped_bytes_ = 0;                  // VMM
    CUmemGenericAllocationHandle handle_ = 0;  // VMM
};

/** `size` bytes with the pattern of `seed`, `misalignment` bytes behind a page boundary, received
 * into `capacity` bytes. */
struct Placement {
    size_t size;
    size_t misalignment;  // at most kMaxMisalignment
    size_t capacity;      // >= size; what is beyond the message stays as it was
    uint64_t seed;
};

class GuardedAllocation {
public:
    static constexpr size_t kGuardBytes = 4096;
    static constexpr size_t kMaxMisalignment = 4095;

    GuardedAllocation(Allocator allocator, size_t max_capacity)
        : memory_(allocator, max_capacity + kMaxMisalignment + 2 * kGuardBytes) {}

    Allocation &memory() { return memory_; }
    unsigned char *address(const Placement &place) const {
        return memory_.data() + kGuardBytes + place.misalignment;
    }
    void prepare_source(const Placement &place);
    /** Canaries around, poison in the place of the message. */
    void prepare_destination(const Placement &place);
    /** What is wrong first, "" if every byte is right. */
    std::string find_fault(const Placement &place) const;
    /** Fails the test when a byte of the message, or around it, is not what it should be. */
    void check(const Placement &place) const;

private:
    Allocation memory_;
};

}  // namespace gpushm::ucp_test
