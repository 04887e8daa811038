// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/domains.hpp"

#include "core/copy/row_views.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/registration_table.hpp"
#include "core/transport/link.hpp"
#include "openmpi/setup/attachment.hpp"
#include "uct_gpushm/cost_model.hpp"
#include "uct_gpushm/memory_copy_domain.hpp"
#include "uct_gpushm/memory_types.hpp"

#include <cstring>
#include <optional>

namespace gpushm::uct {
namespace {

uct_mem_h memh_of(uint64_t registration) {
    return reinterpret_cast<uct_mem_h>(registration);
}
uint64_t registration_of(uct_mem_h memh) {
    return reinterpret_cast<uint64_t>(memh);
}

/** A remote key as it travels. */
struct PackedKey {
    uint64_t registration;  // RegistrationTable id in the process that packed it
    BufferKey buffer;       // in which the registration begins
    uint64_t head_start;    // RemoteMemory::head_start
    StridedRows rows;  // instead of the block at the registration's RowViews source; length 0: none
    uint64_t block;    // that source
};

/** Whether the memory of a key is elsewhere: then the key says where. */
bool name_rows(const void *address, size_t length, PackedKey *key) {
    const void *block = nullptr;
    const std::optional<StridedRows> rows =
        RowViews::instance().name_source(address, length, &block);
    if (rows) {
        key->rows = *rows;
        key->block = reinterpret_cast<uint64_t>(block);
    }
    return rows.has_value();
}

class SharedMemoryDomain : public Domain {
public:
    InterfaceKind interface_kind() const override { return InterfaceKind::shared_memory; }
    const char *device_name() const override { return "gpushm"; }

    void query(abi::MdAttributes &attributes) const override {
        attributes.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY |
                           UCT_MD_FLAG_INVALIDATE;
        attributes.reg_mem_types = kAllMemoryTypes;
        // Never a GPU type: UCP would take our interface for one that copies inside the process.
        attributes.access_mem_types = memory_type_bit(UCS_MEMORY_TYPE_HOST);
        attributes.reg_overhead = registration_overhead();
    }
    size_t rkey_packed_size() const override { return sizeof(PackedKey); }

    /** Carries nothing of the allocation but its range: UCP keeps handles of freed memory in its
     * cache, and what lies at an address is looked up for each operation. */
    ucs_status_t mem_reg(void *address, size_t length, uct_mem_h &memh) override {
        memh = memh_of(RegistrationTable::instance().add(address, length));
        return UCS_OK;
    }
    /** Peers notice each: UCP frees memory of requests that it gives up without a word, too, where
     * it has no registration cache. */
    ucs_status_t mem_dereg(uct_mem_h memh, bool) override {
        RegistrationTable::instance().remove(registration_of(memh));
        return UCS_OK;
    }
    ucs_status_t mkey_pack(uct_mem_h memh, const void *announced, size_t announced_length,
                           void *rkey_buffer) override {
        // The allocation is looked up now: the handle may be older than what lies there.
        PackedKey key = {};
        key.registration = registration_of(memh);
        const void *address = nullptr;
        size_t length = 0;
        if (RegistrationTable::instance().find(key.registration, &address, &length)) {
            const bool in_rows = name_rows(address, length, &key);
            const MemoryInfo info =
                query_memory(in_rows ? reinterpret_cast<const void *>(key.rows.address) : address);
            if (info.needs_gpu() && abi::packs_for_program()) {
                be_synchronous(
                    info, in_rows ? reinterpret_cast<const void *>(key.rows.address) : address);
            }
            const bool by_gpu = announced != nullptr ? gpu_copies(info, announced, announced_length)
                                                     : gpu_copies(info, address, length);
            key.buffer = make_buffer_key(info, by_gpu);
            const bool may_start = announced != nullptr && !in_rows;
            if (Link *link = may_start ? Link::packing() : nullptr) {
                key.head_start = link->plan_head_start(announced, announced_length, by_gpu);
            }
        }
        memcpy(rkey_buffer, &key, sizeof(key));
        return UCS_OK;
    }
};

}  // namespace

std::vector<std::string> domain_names() {
    if (CudaDriver::get() == nullptr) {
        return {kSharedMemoryDomain};
    }
    return {kSharedMemoryDomain, kMemoryCopyDomain};
}

std::unique_ptr<abi::MemoryDomain> open_domain(const std::string &name) {
    if (name == domain_names().back()) {
        openmpi::attach();  // once
    }
    if (name == kMemoryCopyDomain) {
        return make_memory_copy_domain();
    }
    return std::make_unique<SharedMemoryDomain>();
}

ucs_status_t unpack_rkey(const void *rkey_buffer, uct_rkey_t *rkey, void **handle) {
    auto *key = new PackedKey;
    memcpy(key, rkey_buffer, sizeof(*key));
    *rkey = reinterpret_cast<uct_rkey_t>(key);
    *handle = key;
    return UCS_OK;
}

ucs_status_t release_rkey(uct_rkey_t, void *handle) {
    delete static_cast<PackedKey *>(handle);
    return UCS_OK;
}

RemoteMemory remote_memory(uct_rkey_t rkey, uint64_t address) {
    const auto *key = reinterpret_cast<const PackedKey *>(rkey);
    const bool in_rows = key->rows.length != 0;
    if (in_rows && key->block != address) {
        return {address, key->registration};  // the buffer that the key names is that of the rows
    }
    return {address, key->registration, key->buffer, key->head_start, key->rows};
}

}  // namespace gpushm::uct
