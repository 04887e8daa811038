// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/abstract_address.hpp"

#include <cinttypes>
#include <cstddef>
#include <cstdio>

namespace gpushm {

socklen_t abstract_address(const char *purpose, const Cookie &cookie, sockaddr_un *address) {
    *address = {};
    address->sun_family = AF_UNIX;
    // The zero byte in front makes the name abstract.
    const int length =
        snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                 "gpushm-%s-%016" PRIx64 "%016" PRIx64, purpose, cookie.low, cookie.high);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

namespace {

/** A socket for which `call` (bind or connect) has succeeded with the address; else empty. */
template <typename Call>
UniqueFd make_socket(const char *purpose, const Cookie &cookie, Call call) {
    UniqueFd made(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address;
    const socklen_t length = abstract_address(purpose, cookie, &address);
    if (!made || call(made.get(), reinterpret_cast<const sockaddr *>(&address), length) != 0) {
        return UniqueFd();
    }
    return made;
}

}  // namespace

UniqueFd bind_abstract(const char *purpose, const Cookie &cookie) {
    return make_socket(purpose, cookie, bind);
}

bool is_abstract_bound(const char *purpose, const Cookie &cookie) {
    return bool(make_socket(purpose, cookie, connect));
}

}  // namespace gpushm
