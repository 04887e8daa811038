// SPDX-License-Identifier: BSD-3-Clause
// Functions of the driver that begin with a jump to one of ours.
#pragma once

#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"

#include <vector>

namespace gpushm {

/** Makes `function` begin with a jump to `hook`; `*original` then calls what `function` did, unless
 * `original` is null. `name` is for messages. False, and nothing is changed, when it cannot. */
using PatchFunction = bool (*)(void *function, void *hook, const char *name, void **original);

/** A function of libcuda.so.1 and what is called in its place. */
struct Hook {
    const char *symbol;
    const char *name;  // for cuGetProcAddress
    void *replacement;
    void **original;
};

/** What a call of the driver returns in which gpushm ran out of memory. Hooks leave undone what
 * they can and call the driver all the same (as_possible()), so that nobody should see it. */
struct DriverFailure {
    template <typename Result>
    static Result of() {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
};

/** `HookType` has a static function `call` and a static pointer `original`, of the driver's type.
 */
template <typename HookType>
Hook hook(const char *symbol, const char *name) {
    return {symbol, name, reinterpret_cast<void *>(&NoThrow<&HookType::call, DriverFailure>::call),
            reinterpret_cast<void **>(&HookType::original)};
}

/** Hooks what this driver has of them; null when all of that could be, else one that could not. For
 * a driver that is loaded. */
const Hook *install_hooks(PatchFunction patch, const std::vector<Hook> &hooks);

/** The same for hooks that nothing may get past: one by whose name the CUDA runtime gets something
 * else could not be hooked either. */
const Hook *install_all_hooks(PatchFunction patch, const std::vector<Hook> &hooks);

}  // namespace gpushm
