// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/addresses.hpp"

#include "core/base/log.hpp"
#include "core/base/process.hpp"

#include <atomic>
#include <cstring>

namespace gpushm::uct {

DeviceAddress local_device_address(InterfaceKind kind) {
    static const uint64_t node = node_identity();
    DeviceAddress address;
    address.kind = kind;
    address.protocol_version = static_cast<uint8_t>(kProtocolVersion);
    address.user_id = geteuid();
    address.node = node;
    return address;
}

bool same_node(InterfaceKind kind, const void *device_addr, size_t length) {
    DeviceAddress peer;
    if (device_addr == nullptr || (length != 0 && length != sizeof(peer))) {
        return false;
    }
    memcpy(&peer, device_addr, sizeof(peer));
    const DeviceAddress local = local_device_address(kind);
    if (peer.kind != kind || peer.node != local.node) {
        return false;
    }
    if (peer.protocol_version != local.protocol_version) {
        GPUSHM_LOG_ONCE(
            warn,
            "a peer on this node runs another version of gpushm (protocol %u, here %u): "
            "UCX uses another transport for it; install one version for both",
            peer.protocol_version, local.protocol_version);
        return false;
    }
    if (peer.user_id != local.user_id) {
        GPUSHM_LOG_ONCE(warn,
                        "a peer on this node runs as user %u, this process as user %u: UCX uses "
                        "another transport for it; run both as the same user",
                        peer.user_id, local.user_id);
        return false;
    }
    return true;
}

bool read_interface_address(InterfaceKind kind, const void *iface_addr, size_t length,
                            InterfaceAddress *address) {
    if (length != 0 && length != sizeof(*address)) {
        return false;
    }
    memcpy(static_cast<void *>(address), iface_addr, sizeof(*address));
    return address->kind == kind;
}

}  // namespace gpushm::uct
