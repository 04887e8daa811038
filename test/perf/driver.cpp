// SPDX-License-Identifier: BSD-3-Clause
#include "driver.hpp"

#include <dlfcn.h>

#include <stdexcept>

#define GPUSHM_PERF_TEXT_OF(text) #text
#define GPUSHM_PERF_TEXT(macro) GPUSHM_PERF_TEXT_OF(macro)

namespace gpushm::perf {
namespace {

template <typename Function>
bool find(void *library, const char *name, Function *function, std::string *reason) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (*function == nullptr) {
        *reason = std::string("libcuda.so.1 has no ") + name;
    }
    return *function != nullptr;
}

}  // namespace

bool Driver::look_up(void *library, std::string *reason) {
    std::string ignored;
#define X(function) find(library, GPUSHM_PERF_TEXT(function), &this->function, &ignored);
    GPUSHM_PERF_OPTIONAL_FUNCTIONS(X)
#undef X
    find(library, "simcuda_call_count", &call_count_, &ignored);
    bool found = true;
#define X(function) \
    found = found && find(library, GPUSHM_PERF_TEXT(function), &this->function, reason);
    GPUSHM_PERF_REQUIRED_FUNCTIONS(X)
#undef X
    return found;
}

std::unique_ptr<Driver> Driver::open(std::string *reason) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        *reason = dlerror();
        return nullptr;
    }
    std::unique_ptr<Driver> driver(new Driver);
    if (!driver->look_up(library, reason)) {
        return nullptr;
    }
    if (driver->cuInit(0) != CUDA_SUCCESS ||
        driver->cuDeviceGetCount(&driver->device_count_) != CUDA_SUCCESS ||
        driver->device_count_ == 0) {
        *reason = "the CUDA driver has no usable device";
        return nullptr;
    }
    // Also behind a driver that passes calls on.
    driver->simulated_ = driver->device_name(0).rfind("Simulated GPU", 0) == 0;
    return driver;
}

std::string Driver::device_name(int ordinal) const {
    char name[256] = "?";
    CUdevice device;
    if (cuDeviceGet(&device, ordinal) == CUDA_SUCCESS) {
        cuDeviceGetName(name, sizeof(name), device);
    }
    return name;
}

std::string Driver::description() const {
    int version = 0;
    cuDriverGetVersion(&version);
    // 1000 * major + 10 * minor (CUDA driver API, version management).
    return "CUDA driver " + std::to_string(version / 1000) + "." +
           std::to_string(version % 1000 / 10) + ", " + std::to_string(device_count_) +
           (device_count_ == 1 ? " device, " : " devices, ") + device_name(0);
}

void Driver::use_device(int ordinal) const {
    CUdevice device;
    CUcontext context;
    const std::string which = " of device " + std::to_string(ordinal);
    require(cuDeviceGet(&device, ordinal), ("cuDeviceGet" + which).c_str());
    require(cuDevicePrimaryCtxRetain(&context, device),
            ("cuDevicePrimaryCtxRetain" + which).c_str());
    require(cuCtxSetCurrent(context), ("cuCtxSetCurrent" + which).c_str());
}

void Driver::require(CUresult result, const char *what) const {
    if (result == CUDA_SUCCESS) {
        return;
    }
    const char *name = nullptr;
    cuGetErrorName(result, &name);
    throw std::runtime_error(
        std::string(what) + " failed: " + (name != nullptr ? name : std::to_string(result)) +
        (result == CUDA_ERROR_DEVICE_UNAVAILABLE ? ", another process has the GPU for itself"
                                                 : ""));
}

}  // namespace gpushm::perf
