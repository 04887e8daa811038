// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/numa_node.hpp"

#include "core/cuda/cuda_driver.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpushm {
namespace {

// CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, which the headers of CUDA 11 do not have (CUDA 12.2).
constexpr auto kHostNumaId = static_cast<CUdevice_attribute>(134);

}  // namespace

int numa_node_of(const MemoryInfo &gpu_side) {
    const CudaDriver *driver = CudaDriver::get();
    int node = kAnyNumaNode;
    if (driver == nullptr ||
        driver->device_get_attribute(&node, kHostNumaId, gpu_side.device) != CUDA_SUCCESS) {
        return kAnyNumaNode;
    }
    return node;
}

void prefer_numa_node(void *address, size_t length, int node) {
    constexpr int kNodes = 1024;  // of which Linux knows (CONFIG_NODES_SHIFT, at most 10)
    constexpr int kBits = 8 * sizeof(unsigned long);
    if (node < 0 || node >= kNodes) {
        return;
    }
    unsigned long nodes[kNodes / kBits] = {};
    nodes[node / kBits] = 1ul << (node % kBits);
    syscall(SYS_mbind, address, length, MPOL_PREFERRED, nodes, kNodes + 1ul, 0u);
}

}  // namespace gpushm
