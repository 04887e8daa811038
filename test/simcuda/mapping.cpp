// SPDX-License-Identifier: BSD-3-Clause
// Address ranges of this process that hold simulated memory.
#include "mapping.hpp"

#include "raw_system_call.hpp"

#include <algorithm>
#include <deque>
#include <sys/mman.h>

namespace simcuda {

namespace {

void *map(void *at, std::size_t bytes, int protection, int flags, int file, std::size_t offset) {
    return reinterpret_cast<void *>(raw_system_call(SYS_mmap, reinterpret_cast<long>(at),
                                                    static_cast<long>(bytes), protection, flags,
                                                    file, static_cast<long>(offset)));
}

void unmap(char *address, std::size_t bytes) {
    if (bytes > 0) {
        raw_system_call(SYS_munmap, reinterpret_cast<long>(address), static_cast<long>(bytes));
    }
}

struct FreedRange {
    char *address;
    std::size_t bytes;
};

// The last ranges that were given back, newest first. Guarded by the driver's lock.
std::deque<FreedRange> &freed_ranges() {
    static auto &ranges = *new std::deque<FreedRange>;
    return ranges;
}

constexpr std::size_t kFreedRanges = 64;

// The address, on a multiple of `alignment`, of `bytes` free bytes that were used before, or null.
char *take_freed_range(std::size_t bytes, std::size_t alignment) {
    auto &ranges = freed_ranges();
    for (auto range = ranges.begin(); range != ranges.end(); ++range) {
        const auto address = reinterpret_cast<std::uintptr_t>(range->address);
        if (range->bytes == bytes && address % alignment == 0) {
            char *begin = range->address;
            ranges.erase(range);
            return begin;
        }
    }
    return nullptr;
}

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// A reserved range of `bytes` on a multiple of `alignment`, or MAP_FAILED.
void *reserve(std::size_t bytes, std::size_t alignment = kPageBytes) {
    char *freed = take_freed_range(bytes, alignment);
    if (freed != nullptr) {
        void *again = map(freed, bytes, PROT_NONE, kReserved | MAP_FIXED_NOREPLACE, -1, 0);
        if (again == freed) {
            return again;
        }
        if (again != MAP_FAILED) {
            unmap(static_cast<char *>(again), bytes);  // a kernel before 4.17 takes it as a hint
        }
    }
    void *wide = map(nullptr, bytes + alignment, PROT_NONE, kReserved, -1, 0);
    if (wide == MAP_FAILED) {
        return wide;
    }
    char *begin = static_cast<char *>(wide);
    const std::size_t skip = -reinterpret_cast<std::uintptr_t>(begin) & (alignment - 1);
    unmap(begin, skip);
    unmap(begin + skip + bytes, alignment - skip);
    return begin + skip;
}

}  // namespace

Mapping::~Mapping() {
    unmap(address_, bytes_);
    if (reusable_) {
        auto &ranges = freed_ranges();
        ranges.push_front({address_, bytes_});
        if (ranges.size() > kFreedRanges) {
            ranges.pop_back();
        }
    }
}

std::unique_ptr<Mapping> Mapping::host(std::size_t bytes) {
    void *address = map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return std::unique_ptr<Mapping>(address == MAP_FAILED ? nullptr : new Mapping(address, bytes));
}

std::unique_ptr<Mapping> Mapping::of_file(int file, std::size_t offset, std::size_t bytes) {
    void *address = map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    return std::unique_ptr<Mapping>(address == MAP_FAILED ? nullptr : new Mapping(address, bytes));
}

std::unique_ptr<Mapping> Mapping::duplicate(void *address, std::size_t bytes) {
    // mremap(2): an old size of 0 makes a second mapping of shared pages, and fails for others.
    void *other = reinterpret_cast<void *>(raw_system_call(
        SYS_mremap, reinterpret_cast<long>(address), 0, static_cast<long>(bytes), MREMAP_MAYMOVE));
    return std::unique_ptr<Mapping>(
        other == MAP_FAILED ? nullptr : new Mapping(static_cast<char *>(other), bytes));
}

std::unique_ptr<Mapping> Mapping::faulting(int file, std::size_t offset, std::size_t bytes) {
    void *reserved = reserve(bytes);
    if (reserved == MAP_FAILED) {
        return nullptr;
    }
    void *address = map(reserved, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, offset);
    if (address == MAP_FAILED) {
        unmap(static_cast<char *>(reserved), bytes);
        return nullptr;
    }
    std::unique_ptr<Mapping> mapping(new Mapping(address, bytes));
    mapping->reusable_ = true;
    return mapping;
}

std::unique_ptr<Mapping> Mapping::reserved(std::size_t bytes, std::size_t alignment) {
    void *address = reserve(bytes, std::max(alignment, kPageBytes));
    if (address == MAP_FAILED) {
        return nullptr;
    }
    std::unique_ptr<Mapping> mapping(new Mapping(address, bytes));
    mapping->reusable_ = true;
    return mapping;
}

bool Mapping::fill(std::size_t offset, int file, std::size_t bytes) {
    return map(address_ + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
           MAP_FAILED;
}

void Mapping::clear(std::size_t offset, std::size_t bytes) {
    map(address_ + offset, bytes, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
}

}  // namespace simcuda
