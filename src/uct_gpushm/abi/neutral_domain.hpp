// SPDX-License-Identifier: BSD-3-Clause
// A memory domain in terms that no UCX version changes; the adapter makes a uct_md_t from it.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

namespace gpushm::abi {

/** The properties of a memory domain. Memory types are bit masks of UCS_BIT(ucs_memory_type_t). The
 * adapter reports cache_mem_types as equal to reg_mem_types (asserted by UCX from 1.16 on). */
struct MdAttributes {
    /** UCT_MD_FLAG_*. The adapter clears flags that the running UCX does not know, and adds
     * INVALIDATE_RMA and INVALIDATE_AMO to INVALIDATE if they exist. */
    uint64_t flags = 0;
    uint64_t reg_mem_types = 0;
    uint64_t access_mem_types = 0;
    uint64_t detect_mem_types = 0;
    uint64_t alloc_mem_types = 0;
    double reg_overhead = 0;  // seconds that a registration takes
};

/** The allocation that contains an address. dmabuf is never reported. */
struct MemoryAttributes {
    ucs_memory_type_t mem_type = UCS_MEMORY_TYPE_HOST;
    ucs_sys_device_t sys_dev = UCS_SYS_DEVICE_ID_UNKNOWN;
    void *base_address = nullptr;
    size_t alloc_length = 0;
};

/** A memory domain. UCX may call every method from several threads at the same time. Methods that a
 * domain does not override return UCS_ERR_UNSUPPORTED. */
class MemoryDomain {
public:
    virtual ~MemoryDomain() = default;
    virtual void query(MdAttributes &attributes) const = 0;
    /** Bytes of a key, at most 254; 0: the domain has no keys. Called for each message. */
    virtual size_t rkey_packed_size() const { return 0; }
    virtual ucs_status_t mem_alloc(size_t & /*length*/, void *& /*address*/,
                                   ucs_memory_type_t /*mem_type*/, uct_mem_h & /*memh*/) {
        return UCS_ERR_UNSUPPORTED;
    }
    virtual ucs_status_t mem_free(uct_mem_h /*memh*/) { return UCS_ERR_UNSUPPORTED; }
    virtual ucs_status_t mem_reg(void *address, size_t length, uct_mem_h &memh) = 0;
    /** `invalidates`: peers may still use a key of the memory, and must not access it after this
     * call. The adapter then invokes the completion. */
    virtual ucs_status_t mem_dereg(uct_mem_h memh, bool invalidates) = 0;
    /** UCS_ERR_INVALID_ADDR if the domain does not know the memory. */
    virtual ucs_status_t mem_query(const void * /*address*/, size_t /*length*/,
                                   MemoryAttributes & /*attributes*/) {
        return UCS_ERR_UNSUPPORTED;
    }
    /** Writes exactly rkey_packed_size() bytes, to an unaligned address. Not called if that is 0.
     * The key is for [address, address + length), a part of the registered memory; null: UCX does
     * not say (before 1.16). */
    virtual ucs_status_t mkey_pack(uct_mem_h memh, const void *address, size_t length,
                                   void *rkey_buffer) = 0;
};

/** The domain of a handle that md_open of the component made. */
MemoryDomain &memory_domain(uct_md_h md);

}  // namespace gpushm::abi
