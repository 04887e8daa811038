// SPDX-License-Identifier: BSD-3-Clause
// The names of the sockets of this process.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace gpushm::ucp_test {

/** The beginning of the name of an abstract socket (unix(7)), as far as it is text; else empty. */
inline std::string name_of_socket(int descriptor) {
    sockaddr_un address = {};
    socklen_t length = sizeof(address);
    const bool has_name =
        getsockname(descriptor, reinterpret_cast<sockaddr *>(&address), &length) == 0 &&
        address.sun_family == AF_UNIX && length > offsetof(sockaddr_un, sun_path) + 1;
    return has_name ? std::string(address.sun_path + 1,
                                  strnlen(address.sun_path + 1, sizeof(address.sun_path) - 1))
                    : "";
}

/** Whether the name, or a longer text, is one by which a process tells others how it uses a GPU. It
 * has such names until it ends (GpuClaims, GpuSharing). */
inline bool tells_of_gpu(const std::string &name) {
    for (const char *part : {"gpushm-standby", "gpushm-sharing", "gpushm-computing"}) {
        if (name.find(part) != std::string::npos) {
            return true;
        }
    }
    return false;
}

}  // namespace gpushm::ucp_test
