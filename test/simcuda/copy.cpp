// SPDX-License-Identifier: BSD-3-Clause
// What copies do. When a call returns follows the manual of the driver API, "API synchronization
// behavior".
#include "copy.hpp"

#include "address_range.hpp"
#include "residency.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace simcuda {

namespace {

// Copy engines reach the memory of all devices, kernels that which their context may access.
bool in_reach(const Allocation &allocation, const Context &context) {
    if (!allocation.on_device() || allocation.kind == Allocation::Kind::vmm ||
        (allocation.context == nullptr && allocation.device == context.device)) {
        return true;
    }
    return allocation.context == &context || context.peers.count(allocation.context) == 1;
}

bool permits(const Allocation &allocation, const Access &access) {
    if (access.kernel_of != nullptr && !in_reach(allocation, *access.kernel_of)) {
        return false;
    }
    const unsigned needed =
        access.writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    return (allocation.access_of(access.device) & needed) == needed;
}

// Whether `next` continues `last`, so that the engine finds them side by side.
bool continues(const Allocation &last, const Allocation &next) {
    return last.virtual_memory != nullptr && next.virtual_memory != nullptr &&
           last.virtual_memory->range == next.virtual_memory->range;
}

}  // namespace

CUresult Span::make(std::uintptr_t address, std::size_t bytes, const Access &access, Span *span) {
    span->address_ = address;
    span->bytes_ = bytes;
    const Allocations &known = Allocations::get();
    // By where it begins the driver takes it for ordinary memory, whatever of it is page-locked.
    if (known.find(address) == nullptr) {
        const auto overlap = known.find_overlap(address, bytes);
        const bool pageable = access.may_be_pageable && AddressRange::find(address) == nullptr &&
                              (overlap == nullptr || !overlap->on_device()) &&
                              pages_mapped(address, bytes);
        return pageable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    auto &allocations = span->allocations_;
    for (std::uintptr_t next = address; next - address < bytes;) {
        auto allocation = known.find(next);
        if (allocation == nullptr || !permits(*allocation, access) ||
            (!allocations.empty() && !continues(*allocations.back(), *allocation))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        next = allocation->base + allocation->bytes;
        allocations.push_back(std::move(allocation));
    }
    return CUDA_SUCCESS;
}

void Span::stage() {
    const char *source = reinterpret_cast<const char *>(address_);
    staged_ = std::make_shared<std::vector<char>>(source, source + bytes_);
}

char *Span::engine_address() const {
    if (staged_ != nullptr) {
        return staged_->data();
    }
    if (pageable()) {
        return reinterpret_cast<char *>(address_);
    }
    for (const auto &allocation : allocations_) {
        if (!allocation->live) {
            return nullptr;
        }
    }
    return allocations_.front()->engine_address(address_);
}

char *Span::access() const {
    char *address = engine_address();
    if (address == nullptr || staged_ != nullptr || pageable()) {
        return address;
    }
    const Allocation &allocation = *allocations_.front();
    if (allocation.kind == Allocation::Kind::managed) {
        move_to_device(address_, bytes_);
    }
    const bool stale = allocation.pages != nullptr && !allocation.pages->there(address_, bytes_);
    return stale ? nullptr : address;
}

const PinnedPages *Span::pinned_pages() const {
    const bool registered = engine_address() != nullptr && staged_ == nullptr && !pageable() &&
                            allocations_.front()->pages != nullptr;
    return registered ? allocations_.front()->pages->pinned() : nullptr;
}

const Device *Span::device() const {
    const bool of_device = !pageable() && allocations_.front()->on_device();
    return of_device ? allocations_.front()->device : nullptr;
}

bool Transfer::within_device() const {
    return to.device() != nullptr && to.device() == from.device();
}

CUresult Transfer::make(const Copy &what, const Device &device, Transfer *transfer) {
    transfer->bytes = what.bytes;
    const CUresult result =
        Span::make(what.to, what.bytes, {device, true, what.to_may_be_pageable}, &transfer->to);
    return result != CUDA_SUCCESS
               ? result
               : Span::make(what.from, what.bytes, {device, false, what.from_may_be_pageable},
                            &transfer->from);
}

CUresult Transfer::run(Lock &lock) const {
    const PinnedPages *const to_pages = to.pinned_pages();
    const PinnedPages *const from_pages = from.pinned_pages();
    char *target = to_pages != nullptr ? nullptr : to.access();
    const char *source = from_pages != nullptr ? nullptr : from.access();
    if ((to_pages == nullptr && target == nullptr) ||
        (from_pages == nullptr && source == nullptr)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    lock.unlock();
    bool moved = true;
    if (to_pages == nullptr && from_pages == nullptr) {
        std::memmove(target, source, bytes);
    } else if (to_pages == nullptr) {
        moved = from_pages->read(from.address(), bytes, target);
    } else if (from_pages == nullptr) {
        moved = to_pages->write(to.address(), bytes, source);
    } else {
        std::vector<char> between(bytes);
        moved = from_pages->read(from.address(), bytes, between.data()) &&
                to_pages->write(to.address(), bytes, between.data());
    }
    lock.lock();
    return moved ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool Transfer::waits(const Context &context, bool asynchronous) const {
    if (to.host() && from.host()) {
        return true;
    }
    if (asynchronous) {
        return to.pageable();
    }
    const bool device_to_device = !to.host() && !from.host();
    return context.sync_memops() || to.sync_memops() || from.sync_memops() ||
           (!device_to_device && !from.staged());
}

Operation several(std::vector<Transfer> transfers) {
    Operation operation;
    for (const Transfer &transfer : transfers) {
        operation.bytes += transfer.bytes;
        operation.within_device |= transfer.within_device();
    }
    operation.duration = Engine::get().transfer_time(operation.bytes);
    static std::minstd_rand &random = *new std::minstd_rand;
    std::shuffle(transfers.begin(), transfers.end(), random);
    operation.run = [transfers = std::move(transfers)](Lock &lock) -> CUresult {
        for (const Transfer &transfer : transfers) {
            const CUresult result = transfer.run(lock);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        return CUDA_SUCCESS;
    };
    return operation;
}

CUresult copy(Lock &lock, const std::shared_ptr<Stream> &stream, std::vector<Transfer> transfers,
              bool asynchronous) {
    const CUresult capturing = asynchronous ? CUDA_SUCCESS : refuse_capturing(*stream);
    if (capturing != CUDA_SUCCESS) {
        return capturing;
    }
    for (Transfer &transfer : transfers) {
        if (transfer.from.pageable() && !transfer.to.host()) {
            transfer.from.stage();
        }
    }
    const bool waits = std::any_of(transfers.begin(), transfers.end(), [&](const Transfer &one) {
        return one.waits(stream->context, asynchronous);
    });
    const Position done = Engine::get().enqueue(lock, stream, several(std::move(transfers)));
    if (waits) {
        Engine::get().wait(lock, done);
    }
    return stream->context.sticky_error;
}

}  // namespace simcuda
