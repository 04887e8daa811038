// SPDX-License-Identifier: BSD-3-Clause
// The two memory domains of the component. UCP needs them apart: the one whose interface reaches
// other processes must not claim that it can touch GPU memory in place, the one that copies between
// memory kinds must (UCX src/ucp/core/ucp_worker.c, ucp_worker_mem_type_eps_create).
#pragma once

#include "core/transport/link.hpp"
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/addresses.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpushm::uct {

constexpr const char *kSharedMemoryDomain = "gpushm";
constexpr const char *kMemoryCopyDomain = "gpucpy";

class Domain : public abi::MemoryDomain {
public:
    virtual InterfaceKind interface_kind() const = 0;
    virtual const char *device_name() const = 0;
};

/** Without a CUDA driver there is nothing to copy: then UCP does not detect memory types at all,
 * and host programs pay nothing. */
std::vector<std::string> domain_names();
std::unique_ptr<abi::MemoryDomain> open_domain(const std::string &name);

/** Makes the handle of a key; remote_memory() reads it. */
ucs_status_t unpack_rkey(const void *rkey_buffer, uct_rkey_t *rkey, void **handle);
ucs_status_t release_rkey(uct_rkey_t rkey, void *handle);

/** What a transfer needs of a key and an address of the process that packed it. */
RemoteMemory remote_memory(uct_rkey_t rkey, uint64_t address);

}  // namespace gpushm::uct
