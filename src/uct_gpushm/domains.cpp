// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/domains.hpp"

#include "core/allocation_history.hpp"
#include "core/cuda_driver.hpp"
#include "core/log.hpp"
#include "core/memory_info.hpp"
#include "core/registration_table.hpp"
#include "uct_gpushm/memory_types.hpp"
#include "uct_gpushm/memtype_cache.hpp"

#include <cstring>

namespace gpushm::uct {
namespace {

// From UCX 1.16 on; the adapter drops what the running UCX does not know.
constexpr uint64_t kMdFlagInvalidateRma = uint64_t{1} << 11;
constexpr uint64_t kMdFlagInvalidateAmo = uint64_t{1} << 12;

uct_mem_h memh_of(uint64_t registration) { return reinterpret_cast<uct_mem_h>(registration); }
uint64_t registration_of(uct_mem_h memh) { return reinterpret_cast<uint64_t>(memh); }

ucs_memory_type_t to_memory_type(MemoryKind kind) {
    switch (kind) {
    case MemoryKind::device: return UCS_MEMORY_TYPE_CUDA;
    case MemoryKind::managed: return UCS_MEMORY_TYPE_CUDA_MANAGED;
    default: return UCS_MEMORY_TYPE_HOST;
    }
}

class SharedMemoryDomain : public Domain {
public:
    InterfaceKind interface_kind() const override { return InterfaceKind::shared_memory; }
    const char *device_name() const override { return "gpushm"; }

    void query(abi::MdAttributes &attributes) const override {
        attributes.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY |
                           UCT_MD_FLAG_INVALIDATE | kMdFlagInvalidateRma | kMdFlagInvalidateAmo;
        attributes.reg_mem_types = kAllMemoryTypes;
        // Never a GPU type: UCP would take our interface for one that copies inside the process.
        attributes.access_mem_types = memory_type_bit(UCS_MEMORY_TYPE_HOST);
        attributes.rkey_packed_size = sizeof(uint64_t);
    }

    /** Carries nothing of the allocation but its range: UCP keeps handles of freed memory in its
     *  cache, and what lies at an address is looked up for each operation. */
    ucs_status_t mem_reg(void *address, size_t length, uct_mem_h &memh) override {
        memh = memh_of(RegistrationTable::instance().add(address, length));
        return UCS_OK;
    }
    ucs_status_t mem_dereg(uct_mem_h memh) override {
        RegistrationTable::instance().remove(registration_of(memh));
        return UCS_OK;
    }
    ucs_status_t mkey_pack(uct_mem_h memh, void *rkey_buffer) override {
        const uint64_t registration = registration_of(memh);
        memcpy(rkey_buffer, &registration, sizeof(registration));
        return UCS_OK;
    }
};

class MemoryCopyDomain : public Domain {
public:
    MemoryCopyDomain() { disable_memtype_cache(); }

    InterfaceKind interface_kind() const override { return InterfaceKind::memory_copy; }
    const char *device_name() const override { return "gpucopy"; }

    void query(abi::MdAttributes &attributes) const override {
        attributes.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_ALLOC;
        attributes.reg_mem_types = kAllMemoryTypes;
        attributes.access_mem_types = kAllMemoryTypes;
        attributes.detect_mem_types = kGpuMemoryTypes;
        attributes.alloc_mem_types = kGpuMemoryTypes;
    }

    ucs_status_t mem_alloc(size_t &length, void *&address, ucs_memory_type_t mem_type,
                           uct_mem_h &memh) override {
        const CudaDriver *driver = CudaDriver::get();
        CUdeviceptr allocated = 0;
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        if (mem_type == UCS_MEMORY_TYPE_CUDA) {
            result = driver->mem_alloc(&allocated, length);
        } else if (mem_type == UCS_MEMORY_TYPE_CUDA_MANAGED) {
            result = driver->mem_alloc_managed(&allocated, length, CU_MEM_ATTACH_GLOBAL);
        }
        if (result != CUDA_SUCCESS) {
            GPUSHM_LOG(debug, "cannot allocate %zu bytes of GPU memory (%s)", length,
                       driver->error_name(result));
            return result == CUDA_ERROR_NOT_SUPPORTED ? UCS_ERR_UNSUPPORTED : UCS_ERR_NO_MEMORY;
        }
        address = reinterpret_cast<void *>(allocated);
        memh = address;
        return UCS_OK;
    }
    ucs_status_t mem_free(uct_mem_h memh) override {
        return CudaDriver::get()->mem_free(reinterpret_cast<CUdeviceptr>(memh)) == CUDA_SUCCESS
                   ? UCS_OK
                   : UCS_ERR_IO_ERROR;
    }

    ucs_status_t mem_reg(void *address, size_t, uct_mem_h &memh) override {
        memh = address;
        return UCS_OK;
    }
    ucs_status_t mem_dereg(uct_mem_h) override { return UCS_OK; }
    ucs_status_t mkey_pack(uct_mem_h, void *) override { return UCS_OK; }

    ucs_status_t mem_query(const void *address, size_t,
                           abi::MemoryAttributes &attributes) override {
        const MemoryInfo info = query_memory(address);
        Allocation allocation;
        std::vector<Allocation> gone;
        const bool known = history_.observe(address, info, &allocation, &gone);
        for (const Allocation &freed : gone) {
            abi::report_memory_freed(freed.base, freed.length, to_memory_type(freed.kind));
        }
        if (!known) {
            return UCS_ERR_INVALID_ADDR;
        }
        if (allocation.fresh) {
            // Page-locked memory may have been there, which is host memory to UCP and which the driver
            // may unmap without libucm seeing it.
            abi::report_memory_freed(allocation.base, allocation.length, UCS_MEMORY_TYPE_HOST);
        }
        attributes.mem_type = to_memory_type(info.kind);
        attributes.base_address = allocation.base;
        attributes.alloc_length = allocation.length;
        return UCS_OK;
    }

private:
    AllocationHistory history_;
};

}  // namespace

std::vector<std::string> domain_names() {
    if (CudaDriver::get() == nullptr) {
        return {kSharedMemoryDomain};
    }
    return {kSharedMemoryDomain, kMemoryCopyDomain};
}

std::unique_ptr<abi::MemoryDomain> open_domain(const std::string &name) {
    if (name == kMemoryCopyDomain) {
        return std::make_unique<MemoryCopyDomain>();
    }
    return std::make_unique<SharedMemoryDomain>();
}

ucs_status_t unpack_rkey(const void *rkey_buffer, uct_rkey_t *rkey, void **handle) {
    uint64_t registration;
    memcpy(&registration, rkey_buffer, sizeof(registration));
    *rkey = registration;
    *handle = nullptr;
    return UCS_OK;
}

ucs_status_t release_rkey(uct_rkey_t, void *) { return UCS_OK; }

}  // namespace gpushm::uct
