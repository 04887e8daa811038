// SPDX-License-Identifier: BSD-3-Clause
// Operations (iface_ of uct_iface_ops_t) that both interfaces of gpushm have.
#pragma once

#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/addresses.hpp"

#include <uct/api/uct.h>

#include <cstdint>
#include <cstring>

namespace gpushm::uct {

/** Fills the lengths of addresses and what both report about zero-copy transfers; zero in all other
 * fields. */
inline void query_common(abi::Iface *iface, uct_iface_attr_t *attr) {
    abi::iface_query_defaults(iface, attr);
    attr->iface_addr_len = sizeof(InterfaceAddress);
    attr->device_addr_len = sizeof(DeviceAddress);
    attr->cap.put.max_zcopy = attr->cap.get.max_zcopy = SIZE_MAX;
    attr->cap.put.max_iov = attr->cap.get.max_iov = 1;
    attr->cap.put.opt_zcopy_align = attr->cap.get.opt_zcopy_align = 1;
    attr->cap.put.align_mtu = attr->cap.get.align_mtu = 1;
}

template <InterfaceKind kKind>
ucs_status_t get_device_address(uct_iface_h, uct_device_addr_t *addr) {
    const DeviceAddress address = local_device_address(kKind);
    memcpy(addr, &address, sizeof(address));
    return UCS_OK;
}

}  // namespace gpushm::uct
