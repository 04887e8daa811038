// SPDX-License-Identifier: BSD-3-Clause
#include "core/host_regions.hpp"

#include "core/cuda_driver.hpp"
#include "core/log.hpp"

#include <atomic>

namespace gpushm {

HostRegions &HostRegions::instance() {
    // Never destroyed: segments may be closed by destructors that run at process exit.
    static HostRegions *regions = new HostRegions;
    return *regions;
}

void HostRegions::add(unsigned char *base, size_t length) {
    std::lock_guard<std::mutex> lock(mutex_);
    regions_[base] = {length, State::pageable, nullptr};
}

void HostRegions::remove(unsigned char *base) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto region = regions_.find(base);
    if (region != regions_.end()) {
        if (region->second.state == State::pinned) {
            // Fails harmlessly when the driver or the context is gone already. In a thread without a
            // context it would fail too, and the driver would take what is mapped here next for the
            // pages that were locked.
            CurrentContext current(CudaDriver::get(), region->second.context);
            CudaDriver::get()->mem_host_unregister(base);
        }
        regions_.erase(region);
    }
}

void HostRegions::set_pinning_enabled(bool enabled) {
    std::lock_guard<std::mutex> lock(mutex_);
    pinning_enabled_ = enabled;
}

void HostRegions::ensure_pinned(const void *address) {
    const auto *byte = static_cast<const unsigned char *>(address);
    std::lock_guard<std::mutex> lock(mutex_);
    auto region = regions_.upper_bound(byte);
    if (region == regions_.begin()) {
        return;
    }
    --region;
    if (byte >= region->first + region->second.length ||
        region->second.state != State::pageable || !pinning_enabled_) {
        return;
    }
    const CudaDriver *driver = CudaDriver::get();
    const CUresult result =
        driver->mem_host_register(const_cast<unsigned char *>(region->first),
                                  region->second.length, CU_MEMHOSTREGISTER_PORTABLE);
    driver->ctx_get_current(&region->second.context);
    region->second.state = result == CUDA_SUCCESS ? State::pinned : State::refused;
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG_ONCE(warn, "cannot page-lock %zu bytes of shared memory for the GPU (%s): GPU "
                        "copies go on more slowly; raise the locked-memory limit (ulimit -l)",
                        region->second.length, driver->error_name(result));
    }
}

}  // namespace gpushm
