// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/system_device.hpp"

#include "core/cuda/cuda_driver.hpp"

#include <array>
#include <atomic>
#include <optional>

namespace gpushm::uct {
namespace {

constexpr size_t kMaxGpus = 64;
constexpr int kNotAsked = 0;  // known numbers are stored plus one

std::optional<int> attribute(CUdevice_attribute which, CUdevice device) {
    int value = 0;
    const CudaDriver *driver = CudaDriver::get();
    if (driver == nullptr || driver->device_get_attribute(&value, which, device) != CUDA_SUCCESS) {
        return std::nullopt;
    }
    return value;
}

ucs_sys_device_t ask(CUdevice device) {
    const std::optional<int> domain = attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device);
    const std::optional<int> bus = attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
    const std::optional<int> slot = attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
    if (!domain || !bus || !slot) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    return abi::find_system_device({static_cast<uint16_t>(*domain), static_cast<uint8_t>(*bus),
                                    static_cast<uint8_t>(*slot), 0});
}

}  // namespace

ucs_sys_device_t system_device_of(const MemoryInfo &info) {
    // Relaxed: a thread that reads kNotAsked asks the driver and gets the same answer.
    static std::array<std::atomic<int>, kMaxGpus> known = {};
    const auto index = static_cast<size_t>(info.device);
    if (info.kind != MemoryKind::device || index >= kMaxGpus) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    int number = known[index].load(std::memory_order_relaxed);
    if (number == kNotAsked) {
        number = 1 + ask(info.device);
        known[index].store(number, std::memory_order_relaxed);
    }
    return static_cast<ucs_sys_device_t>(number - 1);
}

}  // namespace gpushm::uct
