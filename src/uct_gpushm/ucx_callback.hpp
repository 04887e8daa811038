// SPDX-License-Identifier: BSD-3-Clause
// Functions of ours in UCX's tables.
#pragma once

#include "core/base/no_throw.hpp"

#include <sys/types.h>
#include <ucs/type/status.h>

#include <type_traits>

namespace gpushm::uct {

/** A status says that there is no memory; a count is 0, as if nothing had happened. */
struct UcxFailure {
    template <typename Result>
    static Result of() {
        if constexpr (std::is_same_v<Result, ucs_status_t> || std::is_same_v<Result, ssize_t>) {
            return static_cast<Result>(UCS_ERR_NO_MEMORY);
        } else {
            return Result();
        }
    }
};

/** What UCX calls instead of `function`. */
template <auto function>
constexpr auto ucx_callback = &NoThrow<function, UcxFailure>::call;

}  // namespace gpushm::uct
