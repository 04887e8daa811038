// SPDX-License-Identifier: BSD-3-Clause
// What core/kernels/row_copy_kernel.cu does on a GPU.
#include "core/kernels/row_copy_kernel.hpp"

#include "kernel.hpp"

#include <cstring>

namespace simcuda {

namespace {

using gpushm::RowCopies;
using gpushm::RowCopy;

// From the first byte of the first row to the last one of the last.
std::size_t extent(const RowCopy &copy, std::uint64_t pitch) {
    return (copy.rows - 1) * pitch + copy.length;
}

// Words are counted by 32 bits there, and addresses of words are aligned.
bool is_valid(const RowCopy &copy) {
    return copy.rows > 0 && copy.length > 0 &&
           copy.length / gpushm::word_bytes(copy) <= gpushm::kMaxRowCopyWords / copy.rows;
}

CUresult run_copy(Lock &lock, const Context &context, const RowCopy &copy) {
    if (!is_valid(copy)) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    Span to;
    Span from;
    const std::size_t to_extent = extent(copy, copy.destination_pitch);
    const std::size_t from_extent = extent(copy, copy.source_pitch);
    CUresult result = find_kernel_memory(copy.destination, to_extent, true, context, &to);
    if (result == CUDA_SUCCESS) {
        result = find_kernel_memory(copy.source, from_extent, false, context, &from);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    char *target = to.access();
    const char *source = from.access();
    lock.unlock();
    for (std::uint64_t row = 0; row < copy.rows; ++row) {
        std::memcpy(target + row * copy.destination_pitch, source + row * copy.source_pitch,
                    copy.length);
    }
    lock.lock();
    return CUDA_SUCCESS;
}

// The copies, which may be in host memory that kernels reach.
CUresult find_list(const RowCopies &copies, const Context &context, const RowCopy **list) {
    const std::uint32_t group = copies.threads_per_copy;
    if (group == 0 || gpushm::kRowCopyThreads % group != 0 ||
        (copies.list == 0 && copies.count > gpushm::kMaxRowCopyParameters)) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    *list = copies.copy;
    Span memory;
    CUresult result = CUDA_SUCCESS;
    if (copies.list != 0) {
        result = find_kernel_memory(copies.list, copies.count * sizeof(RowCopy), false, context,
                                    &memory);
        *list = reinterpret_cast<const RowCopy *>(memory.access());
    }
    return result;
}

}  // namespace

CUresult run_row_copies(Lock &lock, Context &context, const void *parameter) {
    RowCopies copies;
    std::memcpy(&copies, parameter, sizeof(copies));
    const RowCopy *list = nullptr;
    CUresult result = find_list(copies, context, &list);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (std::uint64_t i = 0; i < copies.count; ++i) {
        result = run_copy(lock, context, list[i]);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace simcuda
