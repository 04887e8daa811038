// SPDX-License-Identifier: BSD-3-Clause
// Which devices exist, and the functions that describe them.
#include "device.hpp"

#include "call.hpp"
#include "device_heap.hpp"
#include "memory_pool.hpp"
#include "settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

namespace simcuda {

namespace {

std::vector<std::unique_ptr<Device>> &all_devices() {
    static auto &all = *new std::vector<std::unique_ptr<Device>>;
    return all;
}

CUuuid make_uuid(unsigned physical) {
    // A random (version 4) UUID whose last byte is the device's number, those before it the
    // machine's.
    static constexpr unsigned char kPattern[16] = {0x5c, 0x1d, 0xa0, 0x5e, 0x73, 0x11, 0x4b, 0x9a,
                                                   0x9f, 0x20, 0x6e, 0xc4, 0x08, 0x5d, 0x31, 0x00};
    CUuuid uuid;
    std::memcpy(uuid.bytes, kPattern, sizeof(kPattern));
    for (int i = 0; i < 3; ++i) {
        uuid.bytes[12 + i] ^= static_cast<char>(Settings::get().node >> 8 * i);
    }
    uuid.bytes[15] = static_cast<char>(physical);
    return uuid;
}

// "GPU-5c1da05e-7311-4b9a-9f20-6ec4085d3100"
std::string uuid_text(const CUuuid &uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
        text += digits;
        if (i == 3 || i == 5 || i == 7 || i == 9) {
            text += '-';
        }
    }
    return text;
}

// The physical device that an entry of CUDA_VISIBLE_DEVICES names (an index or the first letters of
// one UUID), or -1.
int parse_visible_device(const std::string &entry, unsigned device_count) {
    if (entry.rfind("GPU-", 0) == 0) {
        int found = -1;
        for (unsigned physical = 0; physical < device_count; ++physical) {
            if (uuid_text(make_uuid(physical)).rfind(entry, 0) == 0) {
                if (found >= 0) {
                    return -1;
                }
                found = static_cast<int>(physical);
            }
        }
        return found;
    }
    char *end = nullptr;
    const long index = std::strtol(entry.c_str(), &end, 10);
    const bool exists = index >= 0 && index < static_cast<long>(device_count);
    return end != entry.c_str() && exists ? static_cast<int>(index) : -1;
}

// CUDA programming guide, environment variables: devices after the first invalid entry are not
// visible; a device named twice makes none visible.
std::vector<unsigned> visible_devices() {
    const unsigned device_count = Settings::get().device_count;
    std::vector<unsigned> visible;
    const char *variable = std::getenv("CUDA_VISIBLE_DEVICES");
    if (variable == nullptr) {
        for (unsigned physical = 0; physical < device_count; ++physical) {
            visible.push_back(physical);
        }
        return visible;
    }
    std::istringstream entries(variable);
    for (std::string entry; std::getline(entries, entry, ',');) {
        entry.erase(0, entry.find_first_not_of(' '));
        const int physical = parse_visible_device(entry, device_count);
        if (physical < 0) {
            break;
        }
        if (std::find(visible.begin(), visible.end(), physical) != visible.end()) {
            return {};
        }
        visible.push_back(static_cast<unsigned>(physical));
    }
    return visible;
}

int attribute(const Device &device, CUdevice_attribute attribute) {
    constexpr int kMpsEnabled = 133;  // CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older cuda.h lack
    if (static_cast<int>(attribute) == kMpsEnabled) {
        return Settings::get().mps ? 1 : 0;
    }
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            return 9;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
            return device.pci_bus();
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            return 132;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            return 1024;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
            return 32;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
            return 1000000;  // kHz: a cycle is a nanosecond
        case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
            return 3;
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
            return 1;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
            return Settings::get().exclusive ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS
                                             : CU_COMPUTEMODE_DEFAULT;
        case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:  // the only node
        default:
            return 0;
    }
}

// Of visible devices.
bool can_reach(CUdevice from, CUdevice to) {
    return can_access(*find_device(from), *find_device(to));
}

}  // namespace

std::string Device::name() const {
    return "Simulated GPU " + std::to_string(physical);
}

bool find_devices(Lock &) {
    auto &all = all_devices();
    if (all.empty()) {
        for (unsigned physical : visible_devices()) {
            auto device = std::make_unique<Device>();
            device->ordinal = static_cast<CUdevice>(all.size());
            device->physical = physical;
            device->uuid = make_uuid(physical);
            device->primary_context = new_primary_context(*device);
            device->heap = std::make_unique<DeviceHeap>(Settings::get().memory_bytes);
            device->default_pool = std::make_unique<MemoryPool>(*device);
            all.push_back(std::move(device));
        }
    }
    return !all.empty();
}

const std::vector<std::unique_ptr<Device>> &devices() {
    return all_devices();
}

Device *find_device(CUdevice ordinal) {
    const auto &all = devices();
    const bool exists = ordinal >= 0 && static_cast<std::size_t>(ordinal) < all.size();
    return exists ? all[static_cast<std::size_t>(ordinal)].get() : nullptr;
}

Device *find_physical_device(unsigned physical) {
    static auto &hidden = *new std::map<unsigned, Device>;
    for (const auto &device : devices()) {
        if (device->physical == physical) {
            return device.get();
        }
    }
    if (physical >= Settings::get().device_count) {
        return nullptr;
    }
    Device &device = hidden[physical];
    device.ordinal = CU_DEVICE_INVALID;
    device.physical = physical;
    device.uuid = make_uuid(physical);
    return &device;
}

bool can_access(const Device &from, const Device &to) {
    return from.physical == to.physical ||
           Settings::get().peer_access.between(from.physical, to.physical);
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuDeviceGet(CUdevice *handle, int ordinal) {
    static Call call{"cuDeviceGet"};
    return call.given(ordinal).initialised([&](Lock &) -> CUresult {
        if (handle == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (find_device(ordinal) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *handle = ordinal;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDeviceGetCount(int *count) {
    static Call call{"cuDeviceGetCount"};
    return call.initialised([&](Lock &) -> CUresult {
        if (count == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *count = static_cast<int>(devices().size());
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDeviceGetName(char *name, int length, CUdevice handle) {
    static Call call{"cuDeviceGetName"};
    return call.given(length, handle).initialised([&](Lock &) -> CUresult {
        const Device *device = find_device(handle);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (name == nullptr || length <= 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::snprintf(name, static_cast<std::size_t>(length), "%s", device->name().c_str());
        return CUDA_SUCCESS;
    });
}

static CUresult get_uuid(CUuuid *uuid, CUdevice handle) {
    static Call call{"cuDeviceGetUuid"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        const Device *device = find_device(handle);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (uuid == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *uuid = device->uuid;
        return CUDA_SUCCESS;
    });
}

#undef cuDeviceGetUuid
extern "C" CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice handle) {
    return get_uuid(uuid, handle);
}

extern "C" CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice handle) {
    return get_uuid(uuid, handle);
}

extern "C" CUresult cuDeviceTotalMem_v2(std::size_t *bytes, CUdevice handle) {
    static Call call{"cuDeviceTotalMem"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        const Device *device = find_device(handle);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (bytes == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *bytes = device->heap->total_bytes();
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute name, CUdevice handle) {
    static Call call{"cuDeviceGetAttribute"};
    return call.given(name, handle).initialised([&](Lock &) -> CUresult {
        const Device *device = find_device(handle);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (value == nullptr || name <= 0 || name >= CU_DEVICE_ATTRIBUTE_MAX) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *value = attribute(*device, name);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice handle) {
    static Call call{"cuDeviceGetPCIBusId"};
    return call.given(length, handle).initialised([&](Lock &) -> CUresult {
        const Device *device = find_device(handle);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (text == nullptr || length <= 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", device->pci_bus());
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDeviceGetByPCIBusId(CUdevice *handle, const char *text) {
    static Call call{"cuDeviceGetByPCIBusId"};
    return call.initialised([&](Lock &) -> CUresult {
        unsigned domain = 0;
        int bus = 0;
        if (handle == nullptr || text == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (std::sscanf(text, "%x:%x:", &domain, reinterpret_cast<unsigned *>(&bus)) == 2) {
            for (const auto &device : devices()) {
                if (domain == 0 && device->pci_bus() == bus) {
                    *handle = device->ordinal;
                    return CUDA_SUCCESS;
                }
            }
        }
        return CUDA_ERROR_INVALID_VALUE;
    });
}

extern "C" CUresult cuDeviceCanAccessPeer(int *can_access, CUdevice from, CUdevice to) {
    static Call call{"cuDeviceCanAccessPeer"};
    return call.given(from, to).initialised([&](Lock &) -> CUresult {
        if (find_device(from) == nullptr || find_device(to) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (can_access == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *can_access = from != to && can_reach(from, to) ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute name, CUdevice from,
                                            CUdevice to) {
    static Call call{"cuDeviceGetP2PAttribute"};
    return call.given(name, from, to).initialised([&](Lock &) -> CUresult {
        if (find_device(from) == nullptr || find_device(to) == nullptr || from == to) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (value == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        switch (name) {
            case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
            case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
                *value = can_reach(from, to) ? 1 : 0;
                return CUDA_SUCCESS;
            case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
            case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
                *value = 0;
                return CUDA_SUCCESS;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    });
}
