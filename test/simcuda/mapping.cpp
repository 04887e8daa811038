// SPDX-License-Identifier: BSD-3-Clause
// Address ranges of this process that hold simulated memory.
#include "mapping.hpp"

#include <deque>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {

namespace {

void* map(void* at, std::size_t bytes, int protection, int flags, int file, std::size_t offset)
{
    return reinterpret_cast<void*>(
        syscall(SYS_mmap, at, bytes, protection, flags, file, static_cast<off_t>(offset)));
}

void unmap(char* address, std::size_t bytes)
{
    if (bytes > 0) {
        syscall(SYS_munmap, address, bytes);
    }
}

struct FreedRange {
    char* address;
    std::size_t bytes;
};

// The last ranges that were given back, newest first. Guarded by the driver's lock.
std::deque<FreedRange>& freed_ranges()
{
    static auto& ranges = *new std::deque<FreedRange>;
    return ranges;
}

constexpr std::size_t kFreedRanges = 64;

// An address of `bytes` free bytes that was used before, or null.
char* take_freed_range(std::size_t bytes)
{
    auto& ranges = freed_ranges();
    for (auto range = ranges.begin(); range != ranges.end(); ++range) {
        if (range->bytes == bytes) {
            char* address = range->address;
            ranges.erase(range);
            return address;
        }
    }
    return nullptr;
}

// A reserved range of `bytes` on a multiple of kPageBytes, or MAP_FAILED.
void* reserve(std::size_t bytes)
{
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char* freed = take_freed_range(bytes);
    if (freed != nullptr) {
        void* again = map(freed, bytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
        if (again == freed) {
            return again;
        }
        if (again != MAP_FAILED) {
            unmap(static_cast<char*>(again), bytes); // a kernel before 4.17 takes it as a hint
        }
    }
    void* wide = map(nullptr, bytes + kPageBytes, PROT_NONE, kFlags, -1, 0);
    if (wide == MAP_FAILED) {
        return wide;
    }
    char* begin = static_cast<char*>(wide);
    const std::size_t skip = round_to_page(reinterpret_cast<std::uintptr_t>(begin)) -
                             reinterpret_cast<std::uintptr_t>(begin);
    unmap(begin, skip);
    unmap(begin + skip + bytes, kPageBytes - skip);
    return begin + skip;
}

} // namespace

Mapping::~Mapping()
{
    unmap(address_, bytes_);
    if (reusable_) {
        auto& ranges = freed_ranges();
        ranges.push_front({address_, bytes_});
        if (ranges.size() > kFreedRanges) {
            ranges.pop_back();
        }
    }
}

std::unique_ptr<Mapping> Mapping::host(std::size_t bytes)
{
    void* address =
        map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return std::unique_ptr<Mapping>(address == MAP_FAILED ? nullptr : new Mapping(address, bytes));
}

std::unique_ptr<Mapping> Mapping::of_file(int file, std::size_t offset, std::size_t bytes)
{
    void* address = map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    return std::unique_ptr<Mapping>(address == MAP_FAILED ? nullptr : new Mapping(address, bytes));
}

std::unique_ptr<Mapping> Mapping::faulting(int file, std::size_t offset, std::size_t bytes)
{
    void* reserved = reserve(bytes);
    if (reserved == MAP_FAILED) {
        return nullptr;
    }
    void* address = map(reserved, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, offset);
    if (address == MAP_FAILED) {
        unmap(static_cast<char*>(reserved), bytes);
        return nullptr;
    }
    std::unique_ptr<Mapping> mapping(new Mapping(address, bytes));
    mapping->reusable_ = true;
    return mapping;
}

} // namespace simcuda
