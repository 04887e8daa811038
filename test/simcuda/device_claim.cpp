// SPDX-License-Identifier: BSD-3-Clause
// Which context has a device in exclusive mode.
#include "device_claim.hpp"

#include "settings.hpp"

#include <cstddef>
#include <cstdio>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace simcuda {

std::unique_ptr<DeviceClaim> DeviceClaim::make(unsigned physical) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // The zero byte in front makes the name abstract.
    const int length = std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                                     "simcuda-exclusive-%u-%u", Settings::get().node, physical);
    const auto bytes = offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length);
    const int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    std::unique_ptr<DeviceClaim> claim(new DeviceClaim(made));
    const bool bound = bind(made, reinterpret_cast<const sockaddr *>(&address),
                            static_cast<socklen_t>(bytes)) == 0;
    return bound ? std::move(claim) : nullptr;
}

DeviceClaim::~DeviceClaim() {
    close(socket_);
}

}  // namespace simcuda
