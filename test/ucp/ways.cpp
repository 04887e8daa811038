// SPDX-License-Identifier: BSD-3-Clause
#include "failing_calls.hpp"

namespace gpushm::ucp_test {

const std::vector<Way> &ways() {
    constexpr size_t kKiB = 1 << 10;
    constexpr size_t kLarge = (4 << 20) + 1;
    using A = Allocator;
    using O = Operation;
    // Warm: after so many messages everything that is worth it is cached, mapped and registered.
    static const std::vector<Way> all = {
        {"device -> device, 8 B", O::tag, A::device, A::device, 8, 60},
        {"device -> device, 64 KiB", O::tag, A::device, A::device, 64 * kKiB, 60, false, 1, false,
         true},
        {"device -> device, 4 MiB", O::tag, A::device, A::device, kLarge, 6},
        {"device -> device, 4 MiB, new buffers", O::tag, A::device, A::device, kLarge, 2, true},
        {"device -> device, first messages", O::tag, A::device, A::device, kLarge, 0, true, 4,
         false, true},
        {"vmm_shared -> device, 4 MiB", O::tag, A::vmm_shared, A::device, kLarge, 6},
        {"device -> device, one GPU, 64 KiB", O::tag, A::device, A::device, 64 * kKiB, 60, false, 1,
         true, true},
        {"device -> device, one GPU, 4 MiB", O::tag, A::device, A::device, kLarge, 6, false, 1,
         true},
        {"device -> host, 8 B", O::tag, A::device, A::host, 8, 60, false, 1, false, true},
        {"device -> host, 64 KiB", O::tag, A::device, A::host, 64 * kKiB, 60},
        {"device -> host, 4 MiB", O::tag, A::device, A::host, kLarge, 6},
        {"device -> host, first messages", O::tag, A::device, A::host, kLarge, 0, true, 4, false,
         true},
        {"host -> device, 8 B", O::tag, A::host, A::device, 8, 60},
        {"host -> device, 64 KiB", O::tag, A::host, A::device, 64 * kKiB, 60, false, 1, false,
         true},
        {"host -> device, 4 MiB", O::tag, A::host, A::device, kLarge, 6},
        {"host -> device, first messages", O::tag, A::host, A::device, kLarge, 0, true, 4, false,
         true},
        {"managed on the CPU, 64 KiB", O::tag, A::managed_cpu, A::managed_cpu, 64 * kKiB, 60},
        {"managed on the GPU, 4 MiB", O::tag, A::managed_gpu, A::managed_gpu, kLarge, 6},
        {"managed on the CPU -> device, 4 MiB", O::tag, A::managed_cpu, A::device, kLarge, 6, false,
         1, false, true},
        {"put, device -> device, 8 B", O::put, A::device, A::device, 8, 60},
        {"put, device -> device, 1 MiB", O::put, A::device, A::device, 1024 * kKiB, 20},
        {"put, host -> device, 1 MiB", O::put, A::host, A::device, 1024 * kKiB, 20, false, 1, false,
         true},
        {"get, device -> device, 1 MiB", O::get, A::device, A::device, 1024 * kKiB, 20},
        {"get, device -> host, 1 MiB", O::get, A::device, A::host, 1024 * kKiB, 20, false, 1, false,
         true},
    };
    return all;
}

}  // namespace gpushm::ucp_test
