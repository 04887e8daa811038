// SPDX-License-Identifier: BSD-3-Clause
// The memory that an operation reads or writes, and copies.
#pragma once

#include "allocation.hpp"
#include "call.hpp"
#include "stream.hpp"

#include <vector>

namespace simcuda {

// Who accesses memory, and how.
struct Access {
    const Device &device;
    bool writes;
    bool may_be_pageable = false;
    const Context *kernel_of = nullptr;  // set if a kernel of that context does
};

// A range of memory as an operation sees it.
class Span {
public:
    // CUDA_ERROR_INVALID_VALUE if the device may not access the range so, or the range is not
    // within one allocation (or several that are mapped side by side in one reserved range), or
    // within none at all: pageable host memory, which is allowed only where `access` says so.
    static CUresult make(std::uintptr_t address, std::size_t bytes, const Access &access,
                         Span *span);

    bool pageable() const { return allocations_.empty(); }
    bool host() const { return pageable() || allocations_.front()->host(); }
    // The device whose memory it is; null if it is none's, or managed.
    const Device *device() const;
    bool sync_memops() const { return !pageable() && allocations_.front()->sync_memops; }

    // Copies what is there now and makes the copy the memory of the span.
    void stage();
    bool staged() const { return staged_ != nullptr; }

    // Where the engine finds the bytes; null if they were freed.
    char *engine_address() const;

    // The same, for an operation that now reads or writes all of it: managed memory moves to the
    // device, and null also means that registered memory was unmapped.
    char *access() const;

    // The pages that were registered, if they are pinned.
    const PinnedPages *pinned_pages() const;

    std::uintptr_t address() const { return address_; }

private:
    std::uintptr_t address_ = 0;
    std::size_t bytes_ = 0;
    std::vector<std::shared_ptr<Allocation>> allocations_;  // none if pageable
    std::shared_ptr<std::vector<char>> staged_;             // null if not staged
};

// What a call asks to copy.
struct Copy {
    CUdeviceptr to;
    CUdeviceptr from;
    std::size_t bytes;
    // The Dto and Hto functions do not take pageable memory where they name a device.
    bool to_may_be_pageable = true;
    bool from_may_be_pageable = true;
};

// A copy whose memory was found.
struct Transfer {
    Span to;
    Span from;
    std::size_t bytes = 0;

    // Both are memory of one device: the driver copies by a kernel.
    bool within_device() const;

    // CUDA_ERROR_INVALID_VALUE if the device cannot copy the memory.
    static CUresult make(const Copy &what, const Device &device, Transfer *transfer);

    // Whether a call returns only when the copy is complete.
    bool waits(const Context &context, bool asynchronous) const;

    // Moves the bytes, letting go of the lock meanwhile; CUDA_ERROR_ILLEGAL_ADDRESS if the memory
    // is there no more.
    CUresult run(Lock &lock) const;
};

// What a stream does for several copies, in an order that nobody may rely on.
Operation several(std::vector<Transfer> transfers);

// Puts them into the stream and waits as the call has to; pageable sources are read at once.
CUresult copy(Lock &lock, const std::shared_ptr<Stream> &stream, std::vector<Transfer> transfers,
              bool asynchronous);

// The same of one copy, of which the memory is yet to be found.
CUresult copy_bytes(Lock &lock, const std::shared_ptr<Stream> &stream, const Copy &what,
                    bool asynchronous);

bool contexts_alive(CUcontext one, CUcontext other);

inline CUdeviceptr address_of(const void *pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

// By which form of a function a copy is asked for.
struct Manner {
    bool asynchronous;
    CUstream stream;  // null for the default stream
};
constexpr Manner kSynchronous{false, nullptr};
inline Manner asynchronous(CUstream stream) {
    return {true, stream};
}

// Runs `body` with the stream that the copy belongs to.
template <typename Body>
CUresult in_stream_of_call(Call &call, const Manner &manner, Body body) {
    if (manner.asynchronous) {
        call.given(manner.stream);
    }
    return call.initialised([&](Lock &lock) -> CUresult {
        std::shared_ptr<Stream> stream;
        const CUresult result = find_stream_of_call(manner.stream, &stream);
        return result != CUDA_SUCCESS ? result : body(lock, stream);
    });
}

}  // namespace simcuda
