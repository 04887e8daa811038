// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver and the GPUs of this node, examined without a CUDA context.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

struct Gpu {
    std::string name;
    std::string uuid;  // "GPU-..." as nvidia-smi prints it
    std::string pci_id;
    size_t memory_bytes = 0;
    std::optional<unsigned> numa_node;  // from hwloc; empty: unknown, or several
    int compute_mode = 0;               // CUcomputemode
    /** Whether this GPU reaches the memory of GPU i; true for itself. */
    std::vector<bool> reaches;
};

struct GpuSurvey {
    enum class Driver {
        absent,        // no libcuda.so.1
        not_loadable,  // the dynamic loader refuses libcuda.so.1
        too_old,       // libcuda.so.1 lacks functions
        unusable,      // cuInit fails
        usable,
    };
    Driver driver = Driver::absent;
    std::string library;                // the file that was opened; empty: none
    std::string driver_error;           // why an existing driver is not usable
    int driver_result = 0;              // CUresult of cuInit
    std::optional<int> driver_version;  // of CUDA, 1000 * major + 10 * minor
    std::vector<Gpu> gpus;
    bool has_nvidia_device =
        false;  // a GPU on the PCI bus, which need not be in reach; looked for without a driver
};

GpuSurvey survey_gpus();

}  // namespace gpushm::tools
