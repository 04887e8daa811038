// SPDX-License-Identifier: BSD-3-Clause
// The memory that the driver knows.
#include "allocation.hpp"

#include "address_range.hpp"
#include "context.hpp"
#include "device.hpp"
#include "device_heap.hpp"
#include "physical_memory.hpp"

namespace simcuda {

Allocation::Allocation(Kind its_kind, Device *its_device, Context *its_context)
    : kind(its_kind), base(0), bytes(0), device(its_device), context(its_context) {}

Allocation::~Allocation() {
    alias.reset();
    view.reset();
    if (in_heap() && bytes > 0) {
        device->heap->free(heap_offset, bytes);
    }
}

unsigned Allocation::access_of(const Device &accessor) const {
    if (virtual_memory == nullptr) {
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    const auto found = virtual_memory->access.find(&accessor);
    return found == virtual_memory->access.end() ? 0 : found->second;
}

Allocations &Allocations::get() {
    static Allocations &allocations = *new Allocations;
    return allocations;
}

void Allocations::add(std::shared_ptr<Allocation> allocation) {
    allocation->id = ++last_id_;
    allocation->live = true;
    pinned_bytes_ += allocation->host() ? allocation->bytes : 0;
    const std::uintptr_t base = allocation->base;
    by_base_[base] = std::move(allocation);
}

std::shared_ptr<Allocation> Allocations::find(std::uintptr_t address) const {
    auto entry = by_base_.upper_bound(address);
    if (entry == by_base_.begin()) {
        return nullptr;
    }
    --entry;
    return entry->second->contains(address, 1) ? entry->second : nullptr;
}

std::shared_ptr<Allocation> Allocations::find_overlap(std::uintptr_t address,
                                                      std::size_t length) const {
    auto entry = by_base_.lower_bound(address + length);
    if (entry == by_base_.begin()) {
        return nullptr;
    }
    --entry;
    return entry->second->base + entry->second->bytes > address ? entry->second : nullptr;
}

off_t exported_place(const Allocation &allocation) {
    return kExportedPlaces + static_cast<off_t>(allocation.id);
}

Allocations::Map::iterator Allocations::release(Map::iterator entry) {
    Allocation &allocation = *entry->second;
    allocation.live = false;
    if (allocation.exported) {
        let_go_of_place(allocation.device->heap->file(), exported_place(allocation));
    }
    pinned_bytes_ -= allocation.host() ? allocation.bytes : 0;
    return by_base_.erase(entry);
}

void Allocations::release(const std::shared_ptr<Allocation> &allocation) {
    if (allocation->live) {
        release(by_base_.find(allocation->base));
    }
}

void Allocations::release_all(const Context &context) {
    for (auto entry = by_base_.begin(); entry != by_base_.end();) {
        entry = entry->second->context == &context ? release(entry) : std::next(entry);
    }
}

std::shared_ptr<Allocation> allocate_on_device(Allocation::Kind kind, Device &device,
                                               Context *context, std::size_t bytes) {
    const auto offset = device.heap->allocate(bytes);
    if (!offset) {
        return nullptr;
    }
    auto allocation = std::make_shared<Allocation>(kind, &device, context);
    allocation->heap_offset = *offset;
    allocation->bytes = bytes;
    const std::size_t mapped = round_to_page(bytes);
    allocation->view = Mapping::faulting(device.heap->file(), *offset, mapped);
    allocation->alias = Mapping::of_file(device.heap->file(), *offset, mapped);
    if (allocation->view == nullptr || allocation->alias == nullptr) {
        return nullptr;
    }
    allocation->base = reinterpret_cast<std::uintptr_t>(allocation->view->address());
    allocation->engine_base = allocation->alias->address();
    return allocation;
}

std::shared_ptr<Allocation> allocate_pinned(Context &context, std::size_t bytes) {
    auto allocation =
        std::make_shared<Allocation>(Allocation::Kind::pinned, context.device, &context);
    allocation->view = Mapping::host(round_to_page(bytes));
    if (allocation->view == nullptr) {
        return nullptr;
    }
    allocation->bytes = bytes;
    allocation->base = reinterpret_cast<std::uintptr_t>(allocation->view->address());
    allocation->engine_base = allocation->view->address();
    return allocation;
}

}  // namespace simcuda
