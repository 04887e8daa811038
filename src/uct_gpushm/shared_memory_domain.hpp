// SPDX-License-Identifier: BSD-3-Clause
// The memory domain "gpushm": registrations that other processes read and write, and their keys.
#pragma once

#include "core/transport/connection.hpp"
#include "uct_gpushm/domain.hpp"

#include <cstdint>
#include <memory>

namespace gpushm::uct {

std::unique_ptr<Domain> make_shared_memory_domain();

/** Makes a key of what mkey_pack wrote, which may be unaligned; remote_memory() reads the key. */
ucs_status_t unpack_rkey(const void *rkey_buffer, uct_rkey_t *rkey, void **handle);
ucs_status_t release_rkey(uct_rkey_t rkey, void *handle);

/** The memory at `address` of the process that packed `rkey`, as a transfer needs it. */
RemoteMemory remote_memory(uct_rkey_t rkey, uint64_t address);

}  // namespace gpushm::uct
