// SPDX-License-Identifier: BSD-3-Clause
// The memory of one device.
#include "device_heap.hpp"

#include "file_use.hpp"
#include "mapping.hpp"

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace simcuda {

DeviceHeap::DeviceHeap(std::size_t total_bytes)
    : total_bytes_(total_bytes), file_(memfd_create("simcuda", MFD_CLOEXEC)) {
    if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(total_bytes)) == 0) {
        free_bytes_ = total_bytes / kPageBytes * kPageBytes;
        free_pieces_[0] = free_bytes_;
    }
}

std::optional<std::size_t> DeviceHeap::allocate(std::size_t bytes) {
    collect();
    if (bytes > free_bytes_ || round_to_page(bytes) > free_bytes_) {
        return std::nullopt;
    }
    const std::size_t wanted = round_to_page(bytes);
    for (auto piece = free_pieces_.begin(); piece != free_pieces_.end(); ++piece) {
        const auto [offset, available] = *piece;
        if (available >= wanted) {
            free_pieces_.erase(piece);
            if (available > wanted) {
                free_pieces_[offset + wanted] = available - wanted;
            }
            free_bytes_ -= wanted;
            return offset;
        }
    }
    return std::nullopt;
}

void DeviceHeap::free(std::size_t offset, std::size_t bytes) {
    open_elsewhere_.push_back({file_, offset, bytes});
    collect();
}

bool DeviceHeap::take(std::size_t bytes) {
    collect();
    const bool enough = bytes <= free_bytes_;
    free_bytes_ -= enough ? bytes : 0;
    return enough;
}

void DeviceHeap::give_back_file(int file, std::size_t bytes) {
    open_elsewhere_.push_back({file, 0, bytes});
    collect();
}

std::size_t DeviceHeap::free_bytes() {
    collect();
    return free_bytes_;
}

// Gives back what was freed and is not open elsewhere any more.
void DeviceHeap::collect() {
    const auto still_open = [](const Piece &piece) {
        return held_elsewhere(piece.file, static_cast<off_t>(piece.offset));
    };
    const auto closed =
        std::stable_partition(open_elsewhere_.begin(), open_elsewhere_.end(), still_open);
    for (auto piece = closed; piece != open_elsewhere_.end(); ++piece) {
        give_back(*piece);
    }
    open_elsewhere_.erase(closed, open_elsewhere_.end());
}

void DeviceHeap::give_back(const Piece &piece) {
    if (piece.file == file_) {
        give_back(piece.offset, piece.bytes);
        return;
    }
    free_bytes_ += piece.bytes;
    if (piece.file >= 0) {
        close(piece.file);
    }
}

void DeviceHeap::give_back(std::size_t offset, std::size_t bytes) {
    std::size_t freed = round_to_page(bytes);
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(freed));
    free_bytes_ += freed;
    auto next = free_pieces_.lower_bound(offset);
    if (next != free_pieces_.end() && offset + freed == next->first) {
        freed += next->second;
        next = free_pieces_.erase(next);
    }
    if (next != free_pieces_.begin()) {
        const auto previous = std::prev(next);
        if (previous->first + previous->second == offset) {
            previous->second += freed;
            return;
        }
    }
    free_pieces_[offset] = freed;
}

}  // namespace simcuda
