// SPDX-License-Identifier: BSD-3-Clause
// Blocks of GPU memory that stand for rows elsewhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace gpushm {

/** Equal rows at equal distances. */
struct StridedRows {
    uint64_t address;  // of the first one
    uint64_t length;   // bytes of a row
    uint64_t count;
    uint64_t pitch;  // bytes from one row to the next, at least `length`

    /** Of all rows together; 0 if the numbers make no sense. */
    uint64_t bytes() const;
    /** From the first byte to behind the last one. */
    uint64_t extent() const { return (count - 1) * pitch + length; }
};

/** UCP knows a message as one block of memory. Where its elements lie in rows, a copy engine reads
 * or writes them as quickly as the block (cuMemcpy2DAsync; H200, 1 MB in rows of 512 bytes: 12.5 us
 * as against 13.3), and to pack them takes 10 us. So the rows are in the block only when somebody
 * asks for the block itself: CopyEngine does for all that this process copies, and peers get it
 * from there. Memory of a view must not be read in any other way. Thread safe. */
class RowViews {
public:
    static RowViews &instance();

    /** The contents of `block` are what is in `rows`, until remove(). Throws std::bad_alloc. */
    void add_source(const void *block, const StridedRows &rows);
    /** All that arrives at `block` may be written into `rows` instead, until remove(). Throws
     * std::bad_alloc. */
    void add_destination(void *block, const StridedRows &rows);
    /** Both; of no effect on others. */
    void remove(const void *block);

    /** Where what arrives at `address`, for a block of `length` bytes, may go. */
    std::optional<StridedRows> destination(const void *address, size_t length) const;

    /** What one key for [address, +length) can tell of: the only source in there, at `*block`. When
     * there are several they are packed. */
    std::optional<StridedRows> name_source(const void *address, size_t length, const void **block);

    /** Writes the contents of sources that overlap [address, +length) into them; false when the GPU
     * fails, logged. */
    bool pack(const void *address, size_t length) {
        return !any() || pack_overlapping(address, length);
    }

    /** What arrived for a destination is in its rows. */
    void set_filled(const void *block);
    bool is_filled(const void *block) const;

private:
    struct View {
        const void *block;
        StridedRows rows;
        bool is_source;
        std::mutex packing;
        std::atomic<bool> packed{false};
        std::atomic<bool> filled{false};
    };
    using Views = std::unordered_map<const void *, std::shared_ptr<View>>;

    bool any() const { return count_.load(std::memory_order_acquire) != 0; }
    void add(const void *block, const StridedRows &rows, bool is_source);
    std::vector<std::shared_ptr<View>> unpacked(const void *address, size_t length) const;
    bool pack_overlapping(const void *address, size_t length);
    static bool pack(View &view);

    mutable std::mutex mutex_;  // of views_; not held while anything is copied
    Views views_;
    std::atomic<size_t> count_{0};  // of views_; who reads 0 has no view to ask for
};

}  // namespace gpushm
