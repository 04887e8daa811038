// SPDX-License-Identifier: BSD-3-Clause
// The memory of one device, as far as this process allocates it: one memory file, which other
// processes open for IPC. What they have open counts as used after it was freed here.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace simcuda {

class DeviceHeap {
public:
    explicit DeviceHeap(std::size_t total_bytes);

    // The place in the file of `bytes` free bytes (rounded up to kPageBytes); none if there is not
    // that much in one piece. What it holds is not defined.
    std::optional<std::size_t> allocate(std::size_t bytes);

    // Counts `bytes` of another memory file as used; false if there is not so much left.
    bool take(std::size_t bytes);

    // Ends that, and closes the file (-1: none), once no process has it open.
    void give_back_file(int file, std::size_t bytes);

    // Takes back what allocate(bytes) gave, and the memory behind it, once no process has it open.
    void free(std::size_t offset, std::size_t bytes);

    // -1 if the memory file could not be made; then allocate always fails.
    int file() const { return file_; }
    std::size_t total_bytes() const { return total_bytes_; }
    std::size_t free_bytes();

private:
    struct Piece {
        int file;  // of another memory file if it is not file_
        std::size_t offset;
        std::size_t bytes;
    };

    void collect();
    void give_back(const Piece &piece);
    void give_back(std::size_t offset, std::size_t bytes);

    const std::size_t total_bytes_;
    std::size_t free_bytes_ = 0;
    int file_;
    std::map<std::size_t, std::size_t> free_pieces_;  // offset -> bytes; no two touch
    std::vector<Piece> open_elsewhere_;               // freed here
};

}  // namespace simcuda
