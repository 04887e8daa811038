// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/cuda_use.hpp"

#include "core/cuda/cuda_driver.hpp"

#include <link.h>

#include <cstddef>
#include <cstring>

namespace gpushm {
namespace {

int is_runtime(dl_phdr_info *object, size_t, void *) {
    constexpr char kName[] = "/libcudart.so";
    const char *slash = strrchr(object->dlpi_name, '/');
    return slash != nullptr && strncmp(slash, kName, sizeof(kName) - 1) == 0 ? 1 : 0;
}

bool has_context(const CudaDriver &driver) {
    CUcontext current = nullptr;
    int devices = 0;
    // Both answer CUDA_ERROR_NOT_INITIALIZED until cuInit was called.
    if (driver.ctx_get_current(&current) != CUDA_SUCCESS ||
        driver.device_get_count(&devices) != CUDA_SUCCESS) {
        return false;
    }
    bool found = current != nullptr;
    for (int ordinal = 0; ordinal < devices && !found; ++ordinal) {
        CUdevice device = 0;
        found = driver.device_get(&device, ordinal) == CUDA_SUCCESS &&
                driver.primary_context_is_active(device).value_or(true);
    }
    return found;
}

}  // namespace

bool process_uses_cuda() {
    const CudaDriver *driver = CudaDriver::get();
    return driver != nullptr && (dl_iterate_phdr(is_runtime, nullptr) != 0 || has_context(*driver));
}

}  // namespace gpushm
