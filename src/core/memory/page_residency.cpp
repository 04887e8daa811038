// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/page_residency.hpp"

#include "core/base/addresses.hpp"
#include "core/base/unique_fd.hpp"
#include "core/cuda/cuda_driver.hpp"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gpushm {
namespace {

// To read so many entries takes hardly longer than to read one.
constexpr size_t kEntriesAtOnce = 128;

// Bit 63 of an entry of Linux (Documentation/admin-guide/mm/pagemap.rst). Every process may read it
// of itself.
constexpr uint64_t kPresent = uint64_t{1} << 63;

/** /proc/self/pagemap, opened once; a forked child opens its own. */
class Pagemap {
public:
    static const Pagemap &instance() {
        static const Pagemap pagemap;
        return pagemap;
    }
    /** Whether the first and the last of `count` pages are present; `count` is at most
     * kEntriesAtOnce. False also where the file cannot be read. */
    bool ends_present(uintptr_t first_page, size_t count) const {
        uint64_t entries[kEntriesAtOnce];
        const size_t bytes = count * sizeof(entries[0]);
        const auto offset = static_cast<off_t>(first_page * sizeof(entries[0]));
        return pread(file().load(std::memory_order_relaxed), entries, bytes, offset) ==
                   static_cast<ssize_t>(bytes) &&
               (entries[0] & entries[count - 1] & kPresent) != 0;
    }

private:
    Pagemap() {
        open_file();
        pthread_atfork(nullptr, nullptr, open_file);  // the parent's would speak of the parent
    }
    static std::atomic<int> &file() {
        static std::atomic<int> descriptor{-1};
        return descriptor;
    }
    static void open_file() {
        // Overwritten and closed: a child inherits its parent's.
        const UniqueFd former(file().exchange(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC),
                                              std::memory_order_relaxed));
    }
};

}  // namespace

// See the CUDA C++ Programming Guide, "Coherency and concurrency" of unified memory.
bool has_concurrent_access(CUdevice device) {
    constexpr size_t kMaxDevices = 64;
    static std::atomic<int> known[kMaxDevices];  // 0: not asked, else the answer + 1
    if (device < 0 || static_cast<size_t>(device) >= kMaxDevices) {
        return false;
    }
    int answer = known[device].load(std::memory_order_relaxed);
    if (answer == 0) {
        int concurrent = 0;
        CudaDriver::get()->device_get_attribute(
            &concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
        answer = concurrent != 0 ? 2 : 1;
        known[device].store(answer, std::memory_order_relaxed);
    }
    return answer == 2;
}

bool resides_on_cpu(const void *address, size_t length) {
    static const uintptr_t page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = to_number(address);
    const uintptr_t first = begin / page_bytes;
    const uintptr_t last = (begin + std::max<size_t>(length, 1) - 1) / page_bytes;
    const size_t count = last - first + 1;
    // Pages of one range are mostly in one place: the driver migrates 64 KiB to 2 MiB at a time.
    const Pagemap &pagemap = Pagemap::instance();
    return count <= kEntriesAtOnce
               ? pagemap.ends_present(first, count)
               : pagemap.ends_present(first, 1) && pagemap.ends_present(last, 1);
}

bool cpu_copies_managed(const MemoryInfo &info, const void *address, size_t length) {
    return has_concurrent_access(info.device) && resides_on_cpu(address, length);
}

}  // namespace gpushm
