// SPDX-License-Identifier: BSD-3-Clause
#include "core/kernels/kernel_code.hpp"

#include "core/base/log.hpp"
#include "core/kernels/kernel_image.hpp"
#include "core/kernels/reduction_kernel.hpp"
#include "core/kernels/row_copy_kernel.hpp"
#include "core/kernels/standby_protocol.hpp"
#include "core/kernels/cancellable_copy_kernel.hpp"

#include <cstdlib>
#include <cstring>

namespace gpushm {
namespace {

struct NamedKernel {
    const char *name;
    bool may_be_missing;
};

/** By Kernel. */
constexpr NamedKernel kKernels[] = {
    {kStandbyKernelName, false}, {kStandbyClusterName, true},  // a GPU may have no clusters
    {kRowCopyKernelName, false}, {kReductionKernelName, false}, {kCancellableCopyKernelName, false},
};
static_assert(sizeof(kKernels) / sizeof(kKernels[0]) == kKernelCount);

bool find_code(const CudaDriver *driver, CUmodule module, CUfunction *functions,
               CUdeviceptr *cancellations) {
    for (const NamedKernel &kernel : kKernels) {
        const CUresult result = driver->module_get_function(functions, module, kernel.name);
        if (result == CUDA_ERROR_NOT_FOUND && kernel.may_be_missing) {
            *functions = nullptr;
        } else if (result != CUDA_SUCCESS) {
            return false;
        }
        ++functions;
    }
    size_t bytes = 0;
    return driver->module_get_global(cancellations, &bytes, module, kCancellationsName) ==
               CUDA_SUCCESS &&
           bytes == kCancellations * sizeof(Cancellation);
}

bool load_code(const CudaDriver *driver, CUfunction *functions, CUdeviceptr *cancellations) {
    CUmodule module = nullptr;
    if (driver->module_load_data(&module, kernel_fatbin().data) != CUDA_SUCCESS &&
        driver->module_load_data(&module, kernel_ptx().data) != CUDA_SUCCESS) {
        return false;
    }
    const bool found = find_code(driver, module, functions, cancellations);
    if (!found) {
        driver->module_unload(module);
    }
    return found;
}

}  // namespace

void KernelCode::load(CUcontext context) {
    std::call_once(once_, [&] {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const CurrentContext current(driver, context);
        CUdeviceptr cancellations = 0;
        const bool loaded =
            current.result() == CUDA_SUCCESS && load_code(driver, functions_, &cancellations);
        if (!loaded) {
            GPUSHM_LOG(debug,
                       "the GPU kernels cannot be loaded: memory is copied by copy engines only, "
                       "and reductions "
                       "are computed by the CPU");
        }
        const std::lock_guard<std::mutex> lock(cancellations_mutex_);
        for (uint32_t i = 0; loaded && i < kCancellations; ++i) {
            free_cancellations_.push_back({cancellations + i * sizeof(Cancellation)});
        }
        loaded_.store(loaded, std::memory_order_release);
    });
}

std::optional<CancellationSlot> KernelCode::take_cancellation() const {
    const std::lock_guard<std::mutex> lock(cancellations_mutex_);
    if (free_cancellations_.empty()) {
        return std::nullopt;
    }
    const CancellationSlot slot = free_cancellations_.back();
    free_cancellations_.pop_back();
    return slot;
}

void KernelCode::give_back_cancellation(const CancellationSlot &slot) const {
    const std::lock_guard<std::mutex> lock(cancellations_mutex_);
    free_cancellations_.push_back(slot);
}

KernelCodes &KernelCodes::instance() {
    // Never destroyed: at process exit the driver may be gone before us.
    static KernelCodes *const codes = new KernelCodes;
    return *codes;
}

bool KernelCodes::possible() {
    return CudaDriver::get() != nullptr && CudaDriver::get()->has_kernels() &&
           kernel_fatbin().data != nullptr;
}

std::shared_ptr<const KernelCode> KernelCodes::load(CUcontext context, unsigned long long id) {
    if (!possible()) {
        return nullptr;
    }
    std::shared_ptr<KernelCode> code;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        take_ended(codes_);
        code = find_object(codes_, context, id);
        if (code == nullptr) {
            code = codes_[{context, id}] = std::make_shared<KernelCode>();
        }
    }
    code->load(context);
    return code;
}

std::shared_ptr<const KernelCode> KernelCodes::find(CUcontext context, unsigned long long id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return find_object(codes_, context, id);
}

bool launches_are_synchronous() {
    const char *value = getenv("CUDA_LAUNCH_BLOCKING");
    return value != nullptr && strcmp(value, "0") != 0 && *value != '\0';
}

bool has_kernel(const MemoryInfo &gpu_side, Kernel kernel) {
    if (gpu_side.kind != MemoryKind::device || gpu_side.context == nullptr) {
        return false;
    }
    const auto kernels = KernelCodes::instance().find(
        gpu_side.context, CudaDriver::get()->context_id(gpu_side.context));
    return kernels != nullptr && kernels->function(kernel) != nullptr;
}

}  // namespace gpushm
