// SPDX-License-Identifier: BSD-3-Clause
// The memory that an operation reads or writes.
#pragma once

#include "allocation.hpp"

#include <vector>

namespace simcuda {

// A range of memory as a copy sees it.
class Span {
public:
    // CUDA_ERROR_INVALID_VALUE if the range is not within one allocation, or within none at all:
    // pageable host memory, which is allowed only if `may_be_pageable`.
    static CUresult make(std::uintptr_t address, std::size_t bytes, bool may_be_pageable,
                         Span* span);

    bool pageable() const { return allocation_ == nullptr; }
    bool host() const { return allocation_ == nullptr || allocation_->host(); }
    bool sync_memops() const { return allocation_ != nullptr && allocation_->sync_memops; }

    // Copies what is there now and makes the copy the memory of the span.
    void stage();

    // Where the engine finds the bytes; null if the allocation was freed.
    char* engine_address() const;

private:
    std::uintptr_t address_ = 0;
    std::size_t bytes_ = 0;
    std::shared_ptr<Allocation> allocation_;    // null if pageable
    std::shared_ptr<std::vector<char>> staged_; // null if not staged
};

} // namespace simcuda
