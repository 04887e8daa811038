// SPDX-License-Identifier: BSD-3-Clause
// Makes UCX's uct_md_t from a MemoryDomain, with one adapter for each signature that a callback has
// in any UCX.
#include "uct_gpushm/abi/callbacks.hpp"
#include "uct_gpushm/abi/component.hpp"
#include "uct_gpushm/abi/cuda_copy.hpp"
#include "uct_gpushm/abi/rkey.hpp"

#include <array>
#include <utility>

namespace gpushm::abi {

namespace {

/** Begins with the members of struct uct_md (src/uct/base/uct_md.h, UCX 1.13 to 1.23). */
struct Md {
    void *ops;
    void *component;
    std::unique_ptr<MemoryDomain> domain;
};

void close(uct_md_h md) {
    delete reinterpret_cast<Md *>(md);
}

// The operations that invalidation covers are flags of their own from UCX 1.15 on
// (uct_md_flags_v2_t, src/uct/api/v2/uct_v2.h).
constexpr uint64_t kInvalidateRma = uint64_t{1} << 11;
constexpr uint64_t kInvalidateAmo = uint64_t{1} << 12;

uint64_t md_flags(const Layout &layout, uint64_t flags) {
    if (flags & UCT_MD_FLAG_INVALIDATE) {
        flags |= kInvalidateRma | kInvalidateAmo;
    }
    return flags & layout.md_flags;
}

ucs_status_t query(uct_md_h md, void *md_attr) {
    MdAttributes attributes;
    memory_domain(md).query(attributes);

    using F = MdAttrField;
    const Layout &layout = *running().layout;
    const StructLayout<F> &fields = layout.md_attr;
    // UCX 1.13 does not clear the struct before. It sets field_mask and component_name itself.
    const auto set = [&](F field, const auto &value) { store(md_attr, fields, field, value); };
    for (F field : {F::reg_nonblock_mem_types, F::gva_mem_types, F::dmabuf_mem_types}) {
        set(field, uint64_t{0});
    }
    set(F::exported_mkey_packed_size, size_t{0});
    set(F::required_mem_flags, uint8_t{0});
    set(F::reg_alignment, size_t{1});
    set(F::reg_cost, ucs_linear_func_t{attributes.reg_overhead, 0});
    set(F::max_alloc, attributes.alloc_mem_types != 0 ? UINT64_MAX : uint64_t{0});
    set(F::max_reg, SIZE_MAX);
    set(F::flags, md_flags(layout, attributes.flags));
    set(F::reg_mem_types, attributes.reg_mem_types);
    set(F::cache_mem_types, attributes.reg_mem_types);
    set(F::access_mem_types, attributes.access_mem_types);
    set(F::detect_mem_types, attributes.detect_mem_types);
    set(F::alloc_mem_types, attributes.alloc_mem_types);
    set(F::rkey_packed_size, kRkeyHeaderSize + memory_domain(md).rkey_packed_size());
    std::array<unsigned char, 128> all_cpus;
    all_cpus.fill(0xff);
    set(F::local_cpus, all_cpus);
    return UCS_OK;
}

ucs_status_t mem_alloc(uct_md_h md, size_t *length, void **address, ucs_memory_type_t mem_type,
                       unsigned, const char *, uct_mem_h *memh) {
    return guarded([&] { return memory_domain(md).mem_alloc(*length, *address, mem_type, *memh); });
}

ucs_status_t mem_alloc_sys_dev(uct_md_h md, size_t *length, void **address,
                               ucs_memory_type_t mem_type, ucs_sys_device_t, unsigned flags,
                               const char *name, uct_mem_h *memh) {
    return mem_alloc(md, length, address, mem_type, flags, name, memh);
}

ucs_status_t mem_free(uct_md_h md, uct_mem_h memh) {
    return guarded([&] { return memory_domain(md).mem_free(memh); });
}

ucs_status_t mem_reg_flags(uct_md_h md, void *address, size_t length, unsigned, uct_mem_h *memh) {
    return guarded([&] { return memory_domain(md).mem_reg(address, length, *memh); });
}

ucs_status_t mem_reg_params(uct_md_h md, void *address, size_t length, const void *,
                            uct_mem_h *memh) {
    return mem_reg_flags(md, address, length, 0, memh);
}

/** Does what uct_invoke_completion of UCX does (src/uct/base/uct_iface.h). */
void invoke_completion(uct_completion_t *completion, ucs_status_t status) {
    if (status != UCS_OK && completion->status == UCS_OK) {
        completion->status = status;
    }
    if (--completion->count == 0) {
        completion->func(completion);
    }
}

bool can_invalidate(uct_md_h md) {
    MdAttributes attributes;
    memory_domain(md).query(attributes);
    return (attributes.flags & UCT_MD_FLAG_INVALIDATE) != 0;
}

/** Refuses the parameters that UCT_MD_MEM_DEREG_CHECK_PARAMS of UCX refuses
 * (src/uct/base/uct_md.h). */
ucs_status_t mem_dereg(uct_md_h md, const void *params) {
    const auto mask = load<uint64_t>(params, 0);
    const auto memh = (mask & kDeregFieldMemh) ? load<uct_mem_h>(params, kDeregMemh) : nullptr;
    const unsigned flags = (mask & kDeregFieldFlags) ? load<unsigned>(params, kDeregFlags) : 0;
    const bool invalidates = (flags & kDeregFlagInvalidate) != 0;
    auto *completion = (mask & kDeregFieldCompletion)
                           ? load<uct_completion_t *>(params, kDeregCompletion)
                           : nullptr;
    if (memh == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (invalidates && !guarded([&] { return can_invalidate(md); }, false)) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (invalidates && completion == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status =
        guarded([&] { return memory_domain(md).mem_dereg(memh, invalidates); });
    if (status == UCS_OK && invalidates) {
        invoke_completion(completion, UCS_OK);
    }
    return status;
}

constexpr int kNoDmabuf = -1;           // UCT_DMABUF_FD_INVALID, src/uct/api/uct.h since 1.14
constexpr uint8_t kMemRegistrable = 1;  // UCS_MEM_FLAG_REGISTRABLE, since 1.22

ucs_status_t mem_query(uct_md_h md, const void *address, size_t length, void *mem_attr) {
    if (const CudaCopy *found = cuda_copy()) {
        return found->mem_query(found->md, address, length, mem_attr);
    }
    MemoryAttributes attributes;
    const ucs_status_t status =
        guarded([&] { return memory_domain(md).mem_query(address, length, attributes); });
    if (status != UCS_OK) {
        return status;
    }
    using F = MemAttrField;
    const StructLayout<F> &fields = running().layout->mem_attr;
    static const MaskBits<F> mask_bits(fields);  // UCP queries five to seven times a message
    const auto mask = load<uint64_t>(mem_attr, 0);
    const auto answer = [&](F field, auto value) {
        if (mask & mask_bits[field]) {
            store(mem_attr, fields, field, value);
        }
    };
    answer(F::mem_type, attributes.mem_type);
    answer(F::sys_dev, attributes.sys_dev);
    answer(F::base_address, attributes.base_address);
    answer(F::alloc_length, attributes.alloc_length);
    answer(F::dmabuf_fd, kNoDmabuf);
    answer(F::dmabuf_offset, size_t{0});
    answer(F::mem_flags, kMemRegistrable);
    return UCS_OK;
}

ucs_status_t detect_memory_type(uct_md_h md, const void *address, size_t length,
                                ucs_memory_type_t *mem_type) {
    MemoryAttributes attributes;
    const ucs_status_t status =
        guarded([&] { return memory_domain(md).mem_query(address, length, attributes); });
    if (status == UCS_OK) {
        *mem_type = attributes.mem_type;
    }
    return status;
}

ucs_status_t mkey_pack_address(uct_md_h md, uct_mem_h memh, void *address, size_t length,
                               const void *, void *buffer) {
    return guarded([&] {
        if (memory_domain(md).rkey_packed_size() == 0) {
            store(buffer, 0, kRkeyWithoutKey);
            return UCS_OK;
        }
        store(buffer, 0, kRkeyWithKey);
        return memory_domain(md).mkey_pack(memh, address, length,
                                           static_cast<unsigned char *>(buffer) + kRkeyHeaderSize);
    });
}

ucs_status_t mkey_pack(uct_md_h md, uct_mem_h memh, const void *params, void *buffer) {
    return mkey_pack_address(md, memh, nullptr, 0, params, buffer);
}

CallbackTable<MdOp> build_md_ops() {
    const Layout &layout = *running().layout;
    CallbackTable<MdOp> table{layout.md_ops};
    table.set(MdOp::close, close);
    table.set(MdOp::query, query);
    if (layout.signatures.mem_alloc_takes_sys_dev) {
        table.set(MdOp::mem_alloc, mem_alloc_sys_dev);
    } else {
        table.set(MdOp::mem_alloc, mem_alloc);
    }
    table.set(MdOp::mem_free, mem_free);
    if (layout.signatures.mem_reg_takes_params) {
        table.set(MdOp::mem_reg, mem_reg_params);
    } else {
        table.set(MdOp::mem_reg, mem_reg_flags);
    }
    table.set(MdOp::mem_dereg, mem_dereg);
    table.set(MdOp::mem_query, mem_query);
    if (layout.signatures.mkey_pack_takes_address) {
        table.set(MdOp::mkey_pack, mkey_pack_address);
    } else {
        table.set(MdOp::mkey_pack, mkey_pack);
    }
    table.set(MdOp::is_sockaddr_accessible, answer_no);
    table.set(MdOp::detect_memory_type, detect_memory_type);
    table.set(MdOp::mem_elem_release, do_nothing);
    return table;
}

}  // namespace

void *md_ops() {
    static CallbackTable<MdOp> table = build_md_ops();
    return table.data();
}

uct_md_h make_md(std::unique_ptr<MemoryDomain> domain) {
    return reinterpret_cast<uct_md_h>(new Md{md_ops(), component_object(), std::move(domain)});
}

MemoryDomain &memory_domain(uct_md_h md) {
    return *reinterpret_cast<Md *>(md)->domain;
}

}  // namespace gpushm::abi
