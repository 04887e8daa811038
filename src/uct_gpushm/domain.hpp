// SPDX-License-Identifier: BSD-3-Clause
// What both memory domains of the component have in common. There are two because UCP wants
// opposite things of them: the domain whose interface reaches other processes must not claim that
// it can access GPU memory in place, and the one that copies between memory kinds must
// (UCX src/ucp/core/ucp_worker.c, ucp_worker_mem_type_eps_create).
#pragma once

#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/addresses.hpp"

namespace gpushm::uct {

class Domain : public abi::MemoryDomain {
public:
    virtual InterfaceKind interface_kind() const = 0;
    virtual const char *device_name() const = 0;
};

}  // namespace gpushm::uct
