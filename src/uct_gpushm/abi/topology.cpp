// SPDX-License-Identifier: BSD-3-Clause
// UCX's numbers of the devices of the node.
#include "uct_gpushm/abi/running.hpp"

namespace gpushm::abi {
ucs_sys_device_t find_system_device(const PciAddress &address) {
    const auto find = symbols().topo_find_device_by_bus_id;
    ucs_sys_device_t device = UCS_SYS_DEVICE_ID_UNKNOWN;
    const bool found = find != nullptr && find(&address, &device) == UCS_OK;
    return found ? device : ucs_sys_device_t{UCS_SYS_DEVICE_ID_UNKNOWN};
}

}  // namespace gpushm::abi
