// SPDX-License-Identifier: BSD-3-Clause
// Names of sockets that are in no file system (unix(7), "abstract").
#pragma once

#include "core/base/process.hpp"

#include <sys/socket.h>
#include <sys/un.h>

namespace gpushm {

/** The address that processes of one network namespace know by `purpose` (a word) and a cookie;
 * returns its length. Whoever knows the name may send there, other users too. */
socklen_t abstract_address(const char *purpose, const Cookie &cookie, sockaddr_un *address);

/** Makes a datagram socket that does not block, bound to such an address; empty, errno says why. */
UniqueFd bind_abstract(const char *purpose, const Cookie &cookie);

}  // namespace gpushm
