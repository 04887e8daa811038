// SPDX-License-Identifier: BSD-3-Clause
// Changes functions of other libraries.
//
// libucm's ucm_bistro_patch() can change more functions than redirect_function(), but waits 5 ms
// for each of them from UCX 1.16 on, and 50 ms from UCX 1.21 on (src/ucm/bistro/bistro.c,
// ucm_bistro_apply_patch_atomic).
#include "core/base/log.hpp"
#include "core/patching/function_redirection.hpp"
#include "core/patching/near_code.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <mutex>

namespace gpushm::abi {
namespace {

#if defined(__x86_64__)

/** Code near `function` that jumps to `hook`; `hook` itself if there is no room. libucm writes a
 * jump of 5 bytes into the function if the target is less than 2 GB away, otherwise one of 12
 * bytes. For the long jump it has to move instructions that it does not know before UCX 1.19
 * (src/ucm/bistro/bistro_x86_64.c, ucm_bistro_relocate_one). */
void *reachable(const void *function, void *hook) {
    static NearCode near_code;
    const NearCode::Room room = near_code.take(function, 16);
    if (room.code == nullptr) {
        return hook;
    }
    write_far_jump(room.writable, hook);
    return room.code;
}

#else

/** On other machines libucm's jumps reach all addresses. */
void *reachable(const void *, void *hook) {
    return hook;
}

#endif

}  // namespace

bool patch_function(void *function, void *hook, const char *name, void **original) {
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    void *unused = nullptr;
    if (redirect_function(function, hook, original != nullptr ? original : &unused)) {
        return true;
    }
    GPUSHM_LOG(debug, "libucm is asked to change %s", name);
    return symbols().ucm_bistro_patch != nullptr &&
           symbols().ucm_bistro_patch(function, reachable(function, hook), name, original,
                                      nullptr) == UCS_OK;
}

}  // namespace gpushm::abi
