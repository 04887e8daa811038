// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/no_throw.hpp"
#include "core/patching/function_redirection.hpp"
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/abi/running.hpp"

#include <mutex>

namespace gpushm::abi {
namespace {

thread_local unsigned packing;

/** `Function`: ucp_rkey_pack or ucp_memh_pack, by its type. */
template <typename... Arguments>
struct PackingHook {
    static ucs_status_t call(Arguments... arguments) {
        ++packing;
        const ucs_status_t status = original(arguments...);
        --packing;
        return status;
    }
    static inline ucs_status_t (*original)(Arguments...);
};

using RkeyPack =
    PackingHook<void * /*context*/, void * /*memory*/, void ** /*buffer*/, size_t * /*size*/>;
using MemhPack = PackingHook<void * /*memory*/, const void * /*parameters*/, void ** /*buffer*/,
                             size_t * /*size*/>;

template <typename Hook>
bool redirect(void *function) {
    return function != nullptr && redirect_function(function, reinterpret_cast<void *>(&Hook::call),
                                                    reinterpret_cast<void **>(&Hook::original));
}

}  // namespace

bool watch_key_packing() {
    static std::once_flag once;
    static bool watched = false;
    std::call_once(once, [] {
        const Running &ucx = running();
        watched = redirect<RkeyPack>(ucx.rkey_pack) &&
                  (ucx.memh_pack == nullptr || redirect<MemhPack>(ucx.memh_pack));
    });
    return watched;
}

bool packs_for_program() {
    return packing != 0;
}

}  // namespace gpushm::abi
