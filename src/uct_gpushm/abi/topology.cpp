// SPDX-License-Identifier: BSD-3-Clause
// UCX's numbers of the devices of the node.
#include "uct_gpushm/abi/running.hpp"

namespace gpushm::abi {
namespace {

/** ucs_sys_bus_id_t (src/ucs/sys/topo/base/topo.h, UCX 1.13 to 1.23). */
struct BusId {
    uint16_t domain;
    uint8_t bus;
    uint8_t slot;
    uint8_t function;
};

}  // namespace

ucs_sys_device_t find_system_device(const PciAddress &address) {
    const auto find = symbols().topo_find_device_by_bus_id;
    const BusId id = {address.domain, address.bus, address.slot, address.function};
    ucs_sys_device_t device = UCS_SYS_DEVICE_ID_UNKNOWN;
    const bool found = find != nullptr && find(&id, &device) == UCS_OK;
    return found ? device : ucs_sys_device_t{UCS_SYS_DEVICE_ID_UNKNOWN};
}

}  // namespace gpushm::abi
