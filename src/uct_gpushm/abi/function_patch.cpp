// SPDX-License-Identifier: BSD-3-Clause
// Changes functions of other libraries, with what libucm has for that.
#include "core/patching/near_code.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <mutex>

namespace gpushm::abi {
namespace {

#if defined(__x86_64__)

/** Code near `function` that jumps to `hook`, or `hook` where there is no room. libucm puts a jump
 * of 5 bytes into the function when its hook is less than 2 GB away, otherwise one of 12 bytes, for
 * which it has to move instructions that it did not know before UCX 1.19
 * (src/ucm/bistro/bistro_x86_64.c, ucm_bistro_relocate_one): so the jump goes to a page near the
 * function, and from there to the hook. */
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

/** Elsewhere libucm's jumps reach everywhere. */
void *reachable(const void *, void *hook) {
    return hook;
}

#endif

}  // namespace

bool patch_function(void *function, void *hook, const char *name, void **original) {
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    return symbols().ucm_bistro_patch != nullptr &&
           symbols().ucm_bistro_patch(function, reachable(function, hook), name, original,
                                      nullptr) == UCS_OK;
}

}  // namespace gpushm::abi
