// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/row_copy_list.hpp"

#include "core/memory/memory_info.hpp"

#include <algorithm>

namespace gpushm {
namespace {

// A thread copies so many words before more threads pay.
constexpr uint64_t kWordsPerThread = 4;
// More than a GPU has under way at once, so that blocks begin as others end.
constexpr uint64_t kMaxBlocks = 2048;
constexpr uint64_t kWarp = 32;

uint64_t divided_up(uint64_t dividend, uint64_t divisor) {
    return (dividend + divisor - 1) / divisor;
}

}  // namespace

RowCopy row_copy(void *destination, const void *source, size_t length, const CopyRows &rows) {
    return {device_pointer(destination), device_pointer(source), length, rows.count,
            rows.destination_pitch,      rows.source_pitch};
}

RowCopyList::RowCopyList(size_t capacity) {
    parameters_.count = 0;
    parameters_.list = 0;
    copies_ = parameters_.copy;
    if (capacity > kMaxRowCopyParameters) {
        block_.emplace(capacity * sizeof(RowCopy));
        copies_ = static_cast<RowCopy *>(block_->address());
        parameters_.list = device_pointer(copies_);
    }
}

void RowCopyList::add(const RowCopy &copy) {
    copies_[parameters_.count++] = copy;
    most_words_ = std::max(most_words_, words_of(copy));
}

KernelLaunch RowCopyList::launch() {
    const bool short_copies = most_words_ <= kWarp * kWordsPerThread;
    const uint64_t threads = short_copies ? kWarp : kRowCopyThreads;
    parameters_.threads_per_copy = static_cast<uint32_t>(threads);
    const uint64_t copies_at_once =
        std::min(divided_up(parameters_.count, kRowCopyThreads / threads), kMaxBlocks);
    const uint64_t blocks_per_copy = std::clamp<uint64_t>(
        divided_up(most_words_, threads * kWordsPerThread), 1, kMaxBlocks / copies_at_once);
    KernelLaunch launch = {Kernel::copy_rows, static_cast<unsigned>(blocks_per_copy),
                           kRowCopyThreads, &parameters_};
    launch.blocks_y = static_cast<unsigned>(copies_at_once);
    launch.host_memory = block_ ? copies_ : nullptr;
    return launch;
}

}  // namespace gpushm
