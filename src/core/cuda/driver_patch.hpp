// SPDX-License-Identifier: BSD-3-Clause
// Functions of the driver that begin with a jump to one of ours.
#pragma once

#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"

#include <initializer_list>
#include <utility>
#include <vector>

namespace gpushm {

/** Makes `function` begin with a jump to `hook`. `*original` then calls what `function` did, unless
 * `original` is null. `name` is for messages. False, and nothing is changed, when it cannot. */
using PatchFunction = bool (*)(void *function, void *hook, const char *name, void **original);

/** A function of libcuda.so.1 and what is called in its place. */
struct Hook {
    const char *symbol;
    void *replacement;
    void **original;
};
using Hooks = std::vector<Hook>;

/** The result of a hooked call for which gpushm runs out of memory. Hooks leave undone what they
 * can and call the driver all the same (as_possible()), so the application should never see it. */
struct DriverFailure {
    template <typename Result>
    static Result of() {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
};

/** `HookType` has a static function `call` and a static pointer `original`, of the driver's type.
 */
template <typename HookType>
Hook hook(const char *symbol) {
    return {symbol, reinterpret_cast<void *>(&NoThrow<&HookType::call, DriverFailure>::call),
            reinterpret_cast<void **>(&HookType::original)};
}

template <template <int, typename...> typename HookType, typename... Arguments, int... which>
Hooks numbered_hooks(std::initializer_list<const char *> symbols,
                     std::integer_sequence<int, which...> /*numbers*/) {
    return {hook<HookType<which, Arguments...>>(symbols.begin()[which])...};
}

/** HookType<0, Arguments...> for the first symbol, HookType<1, Arguments...> for the second one,
 * and so on. One call names all functions of these types: each needs an `original` of its own. */
template <template <int, typename...> typename HookType, typename... Arguments, typename... Symbols>
Hooks hooks_of(Symbols... symbols) {
    return numbered_hooks<HookType, Arguments...>(
        {symbols...}, std::make_integer_sequence<int, sizeof...(symbols)>());
}

/** All hooks of several lists. */
Hooks joined(std::initializer_list<Hooks> lists);

/** Installs those hooks whose function this driver has. Returns null when all of them could be
 * installed, else the symbol of one that could not. The driver must be loaded. */
const char *install_hooks(PatchFunction patch, const Hooks &hooks);

/** As install_hooks(), for functions of which no call may be missed: a hook also counts as not
 * installed if the CUDA runtime gets another function by its name. */
const char *install_all_hooks(PatchFunction patch, const Hooks &hooks);

}  // namespace gpushm
