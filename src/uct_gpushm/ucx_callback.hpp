// SPDX-License-Identifier: BSD-3-Clause
// Makes functions fit for UCX's tables: no exception may reach UCX.
#pragma once

#include "core/base/no_throw.hpp"

#include <sys/types.h>
#include <ucs/type/status.h>

#include <type_traits>

namespace gpushm::uct {

/** The result when memory is short: a status of UCS_ERR_NO_MEMORY, a count of 0. */
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

/** The function that UCX calls in place of `function`. */
template <auto function>
constexpr auto ucx_callback = &NoThrow<function, UcxFailure>::call;

}  // namespace gpushm::uct
