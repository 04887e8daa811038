// SPDX-License-Identifier: BSD-3-Clause
// What UCX carries to the peer for us: device and interface addresses.
//
// UCX asks about the address of any device of a transport with our name, so both begin with what
// kind of interface made them; lengths are limited to 31 and 63 bytes (UCX
// src/ucp/wireup/address.c).
#pragma once

#include "core/shm/mailbox_layout.hpp"

#include <cstdint>

namespace gpushm::uct {

enum class InterfaceKind : uint8_t {
    shared_memory = 1,  // between processes
    memory_copy = 2,    // between the memory kinds of one process
};

struct __attribute__((packed)) DeviceAddress {
    InterfaceKind kind;
    uint8_t protocol_version;
    uint32_t user_id;
    uint64_t node;  // node_identity()
};

struct InterfaceAddress {
    InterfaceKind kind;
    uint8_t unused[7];
    MailboxAddress mailbox;  // memory_copy: only the cookie, which tells the process
};
static_assert(sizeof(DeviceAddress) <= 31 && sizeof(InterfaceAddress) <= 63, "limits of UCP");

/** What both kinds of interface ask first of a device address. */
DeviceAddress local_device_address(InterfaceKind kind);

/** Reads a device address of `length` bytes (0: not known) and says whether it is one of this kind
 * from this node. False with one line in the log where the user can do something about it. */
bool same_node(InterfaceKind kind, const void *device_addr, size_t length);

/** Reads an interface address of `length` bytes (0: not known), which UCX may hand over unaligned.
 * False when it is none of this kind. */
bool read_interface_address(InterfaceKind kind, const void *iface_addr, size_t length,
                            InterfaceAddress *address);

}  // namespace gpushm::uct
