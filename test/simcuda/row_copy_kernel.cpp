// SPDX-License-Identifier: BSD-3-Clause
// What core/row_copy_kernel.cu does on a GPU.
#include "core/row_copy_kernel.hpp"

#include "kernel.hpp"

#include <cstring>

namespace simcuda {

namespace {

using gpushm::RowCopies;
using gpushm::RowCopy;

// From the first byte of the first row to the last one of the last.
std::size_t extent(const RowCopy& copy, std::uint64_t pitch)
{
    return (copy.rows - 1) * pitch + copy.length;
}

// Words are counted by 32 bits there, and addresses of words are aligned.
bool is_valid(const RowCopy& copy)
{
    return copy.rows > 0 && copy.length > 0 &&
           copy.length / gpushm::word_bytes(copy) <= gpushm::kMostRowCopyWords / copy.rows;
}

CUresult run_copy(Lock& lock, const Context& context, const RowCopy& copy)
{
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
    char* target = to.access();
    const char* source = from.access();
    lock.unlock();
    for (std::uint64_t row = 0; row < copy.rows; ++row) {
        std::memcpy(target + row * copy.destination_pitch, source + row * copy.source_pitch,
                    copy.length);
    }
    lock.lock();
    return CUDA_SUCCESS;
}

} // namespace

CUresult run_row_copies(Lock& lock, Context& context, const void* parameter)
{
    RowCopies copies;
    std::memcpy(&copies, parameter, sizeof(copies));
    if (copies.count > gpushm::kMostRowCopies) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    for (std::uint64_t i = 0; i < copies.count; ++i) {
        const CUresult result = run_copy(lock, context, copies.copy[i]);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

} // namespace simcuda
