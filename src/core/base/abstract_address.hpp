// SPDX-License-Identifier: BSD-3-Clause
// Names of sockets that are in no file system (unix(7), "abstract").
#pragma once

#include "core/base/process.hpp"

#include <sys/socket.h>
#include <sys/un.h>

namespace gpushm {

/** The address of the socket that a word `purpose` and a cookie name; returns its length. All
 * processes of one network namespace that know both can send there, also those of other users. */
socklen_t abstract_address(const char *purpose, const Cookie &cookie, sockaddr_un *address);

/** Makes a non-blocking datagram socket that is bound to that address; empty when it cannot, errno
 * says why. */
UniqueFd bind_abstract(const char *purpose, const Cookie &cookie);

/** Whether a datagram socket is bound to that address, of this process or another one. False where
 * the system does not say. */
bool is_abstract_bound(const char *purpose, const Cookie &cookie);

}  // namespace gpushm
