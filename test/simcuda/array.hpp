// SPDX-License-Identifier: BSD-3-Clause
// CUDA arrays: linear memory whose address nobody is told.
#pragma once

#include "allocation.hpp"

namespace simcuda {

struct Array {
    std::shared_ptr<Allocation> memory;
    std::size_t element_bytes;
    std::size_t row_bytes;
    std::size_t height;  // at least 1
    std::size_t depth;   // at least 1

    std::uintptr_t address() const { return memory->base; }
};

// Null if `handle` names no array.
std::shared_ptr<const Array> find_array(CUarray handle);

// Forgets all arrays of a context, whose memory goes with it.
void destroy_arrays(const Context &context);

}  // namespace simcuda
