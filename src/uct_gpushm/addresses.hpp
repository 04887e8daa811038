// SPDX-License-Identifier: BSD-3-Clause
// The device and interface addresses that UCX carries to the peer. Both begin with the kind of
// interface, because UCX asks each interface about the addresses of all devices of its transport.
// They may have 31 and 63 bytes at most (UCX src/ucp/wireup/address.c).
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
    MailboxAddress mailbox;  // memory_copy: only the cookie, which identifies the process
};
static_assert(sizeof(DeviceAddress) <= 31 && sizeof(InterfaceAddress) <= 63, "limits of UCP");

DeviceAddress local_device_address(InterfaceKind kind);

/** Whether a device address of `length` bytes (0: unknown) comes from an interface of this kind on
 * this node. Logs a peer of another version or user once. */
bool same_node(InterfaceKind kind, const void *device_addr, size_t length);

/** Reads an interface address of `length` bytes (0: unknown), which may be unaligned. False: it is
 * not from an interface of this kind. */
bool read_interface_address(InterfaceKind kind, const void *iface_addr, size_t length,
                            InterfaceAddress *address);

}  // namespace gpushm::uct
