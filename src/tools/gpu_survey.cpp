// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver and the GPUs of this node: see gpu_survey.hpp.
#include "tools/gpu_survey.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "tools/paths.hpp"

#include <dlfcn.h>
#include <hwloc.h>
#include <hwloc/helper.h>
#include <link.h>

#include <cstdio>

namespace gpushm::tools {

namespace {

/** The machine's topology with its PCI devices; a class only to release it. */
class Topology {
public:
    Topology() {
        if (hwloc_topology_init(&topology_) != 0) {
            topology_ = nullptr;
            return;
        }
        // PCI devices only: looking for what the operating system makes of them would start other
        // libraries, CUDA's runtime among them.
        hwloc_topology_set_type_filter(topology_, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
        if (hwloc_topology_load(topology_) != 0) {
            hwloc_topology_destroy(topology_);
            topology_ = nullptr;
        }
    }
    ~Topology() {
        if (topology_ != nullptr) {
            hwloc_topology_destroy(topology_);
        }
    }
    Topology(const Topology &) = delete;
    Topology &operator=(const Topology &) = delete;

    std::optional<unsigned> numa_node_of(const std::string &pci_id) const {
        const hwloc_obj_t device = topology_ != nullptr
                                       ? hwloc_get_pcidev_by_busidstring(topology_, pci_id.c_str())
                                       : nullptr;
        if (device == nullptr) {
            return std::nullopt;
        }
        const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology_, device);
        if (place == nullptr || place->nodeset == nullptr ||
            hwloc_bitmap_weight(place->nodeset) != 1) {
            return std::nullopt;
        }
        return static_cast<unsigned>(hwloc_bitmap_first(place->nodeset));
    }

    bool has_nvidia_gpu() const {
        constexpr unsigned kNvidia = 0x10de;
        constexpr unsigned kDisplayController = 0x03;
        hwloc_obj_t device = nullptr;
        while (topology_ != nullptr &&
               (device = hwloc_get_next_pcidev(topology_, device)) != nullptr) {
            const auto &pci = device->attr->pcidev;
            if (pci.vendor_id == kNvidia && pci.class_id >> 8 == kDisplayController) {
                return true;
            }
        }
        return false;
    }

private:
    hwloc_topology_t topology_ = nullptr;
};

std::string format_uuid(const CUuuid &uuid) {
    std::string text = "GPU-";
    for (unsigned i = 0; i < sizeof(uuid.bytes); ++i) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
        text += digits;
        text += i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "";
    }
    return text;
}

/** What a GPU does not tell stays empty. */
Gpu look_at(const CudaDriver &driver, const Topology &topology, int ordinal, int count) {
    Gpu gpu;
    CUdevice device{};
    if (driver.device_get(&device, ordinal) != CUDA_SUCCESS) {
        return gpu;
    }
    char text[256] = "";
    if (driver.device_get_name(text, sizeof(text), device) == CUDA_SUCCESS) {
        gpu.name = text;
    }
    if (driver.device_get_pci_bus_id(text, sizeof(text), device) == CUDA_SUCCESS) {
        gpu.pci_id = text;
        gpu.numa_node = topology.numa_node_of(gpu.pci_id);
    }
    CUuuid uuid{};
    if (driver.device_get_uuid(&uuid, device) == CUDA_SUCCESS) {
        gpu.uuid = format_uuid(uuid);
    }
    driver.device_total_mem(&gpu.memory_bytes, device);
    driver.device_get_attribute(&gpu.compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
    for (int other = 0; other < count; ++other) {
        CUdevice peer{};
        int reaches = other == ordinal;
        if (other != ordinal && driver.device_get(&peer, other) == CUDA_SUCCESS) {
            driver.device_can_access_peer(&reaches, device, peer);
        }
        gpu.reaches.push_back(reaches != 0);
    }
    return gpu;
}

/** The file of a library that is loaded. */
std::string path_of(void *library) {
    link_map *map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
        return {};
    }
    return resolved(map->l_name);
}

void note_missing_library(GpuSurvey &survey, const std::string &error) {
    if (error.find("libcuda.so.1: cannot open shared object file: No such file") == 0) {
        survey.has_nvidia_device = Topology().has_nvidia_gpu();
        return;
    }
    survey.driver = GpuSurvey::Driver::not_loadable;
    survey.driver_error = error;
}

/** By its functions alone, since it may lack what CudaDriver needs. */
void look_at_library(GpuSurvey &survey, void *library) {
    survey.library = path_of(library);
    int version = 0;
    const auto get_version =
        reinterpret_cast<CUresult (*)(int *)>(dlsym(library, "cuDriverGetVersion"));
    if (get_version != nullptr && get_version(&version) == CUDA_SUCCESS && version != 0) {
        survey.driver_version = version;
    }
    const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(library, "cuInit"));
    survey.driver_result = init != nullptr ? init(0) : CUDA_ERROR_NOT_FOUND;
}

/** A driver that is loaded; empty where it cannot be used. No GPU in reach is no fault of it (CUDA
 * driver API manual, cuInit). */
const CudaDriver *start(GpuSurvey &survey) {
    const bool is_stub = survey.driver_result == CUDA_ERROR_STUB_LIBRARY;
    const CudaDriver *const driver = is_stub ? nullptr : CudaDriver::get();
    const auto result = static_cast<CUresult>(survey.driver_result);
    if (driver == nullptr && !is_stub) {
        survey.driver = GpuSurvey::Driver::too_old;
        survey.driver_error = "it lacks functions that gpushm needs";
    } else if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
        survey.driver = GpuSurvey::Driver::unusable;
        survey.driver_error = is_stub ? "a stub" : driver->error_name(result);
    } else {
        survey.driver = GpuSurvey::Driver::usable;
        return driver;
    }
    return nullptr;
}

}  // namespace

GpuSurvey survey_gpus() {
    GpuSurvey survey;
    void *const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        note_missing_library(survey, dlerror());
        return survey;
    }
    look_at_library(survey, library);
    const CudaDriver *const driver = start(survey);
    int count = 0;
    if (driver == nullptr || driver->device_get_count(&count) != CUDA_SUCCESS) {
        return survey;
    }
    const Topology topology;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        survey.gpus.push_back(look_at(*driver, topology, ordinal, count));
    }
    return survey;
}

}  // namespace gpushm::tools
