// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/gpu_claims.hpp"

#include "core/base/abstract_address.hpp"
#include "core/base/log.hpp"
#include "core/memory/buffer_key.hpp"

#include <pthread.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace gpushm {

GpuClaims &GpuClaims::instance() {
    // Never destroyed: threads may use it while the process ends.
    static GpuClaims *claims = new GpuClaims;
    // A forked child has no kernels, nor the thread that may have had the mutex.
    [[maybe_unused]] static const int watched = pthread_atfork(nullptr, nullptr, [] {
        claims->drop_all();
        new (claims) GpuClaims;
    });
    return *claims;
}

// When the plugin is loaded: a child that is forked within the first call would wait for its end.
[[maybe_unused]] static const GpuClaims &made_at_load = GpuClaims::instance();

/** In a forked child, which would keep the GPUs from all others when the parent has ended. */
void GpuClaims::drop_all() {
    if (mutex_.try_lock()) {
        for (auto &[device, claim] : claims_) {
            claim = UniqueFd();  // not erased: see Background::begin_anew()
        }
    }
}

/** Processes of all users count, since kernels of two users take turns by time slices, too. Any
 * process of the network namespace can bind the name, and so keep the kernel off, whether it uses
 * the GPU or not. A claim is believed all the same: without the kernel small messages lose some
 * microseconds, and a second kernel would cost all of them up to a time slice
 * (doc/decisions/standby-one-process.md). */
bool GpuClaims::claim(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    UniqueFd &claim = claims_[device];
    if (!claim) {
        claim = bind_abstract("standby", {device_identity(device), 0});
        if (!claim) {
            GPUSHM_LOG_ONCE(debug,
                            "another process has the standby kernel of a GPU, or no socket can be "
                            "made (%s): the copy engine copies small messages there; ss -xap shows "
                            "which process has @gpushm-standby-...",
                            strerror(errno));
        }
    }
    return bool(claim);
}

void GpuClaims::release(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    claims_.erase(device);
}

}  // namespace gpushm
