// SPDX-License-Identifier: BSD-3-Clause
// Blocks of GPU memory whose contents lie in rows elsewhere.
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

class RowReading;

/** Fills `block` with the contents of `rows`, and waits; false, logged: the GPU fails. */
using PackRows = bool (*)(void *block, const StridedRows &rows);

/** Blocks whose contents lie elsewhere, until somebody reads the block.
 *
 * UCP knows a message as one block of memory. Where its elements lie in rows, a copy engine reads
 * or writes the rows as quickly as a block, and to pack them costs a copy
 * (doc/decisions/copy-lazy-packing.md). So a block is filled only when it is read: CopyEngine does
 * that for all copies of this process, and peers get the block through copies of this process.
 * Memory of a view must not be read in any other way. Thread safe. */
class RowViews {
public:
    static RowViews &instance();

    /** The contents of `block` are those of `rows`, until remove(); `pack` fills it
     * (add_row_source() of row_packing.hpp). Throws std::bad_alloc. */
    void add_source(const void *block, const StridedRows &rows, PackRows pack);
    /** Nobody is told of the rows any more: whoever reads the block from now on has it filled. */
    void hide_source(const void *block);
    // Both return true when nobody reads the rows of a source any more, so that they may change.
    /** Fills the block, unless anybody was told of its rows. */
    bool fill_untold(const void *block);
    /** The contents are at `address` in host memory, too, all in one: the block is filled from
     * there from now on. False: source() has told of the rows, and they are not read yet. Peers
     * that were told by name_source() are the caller's concern. */
    bool move_source(const void *block, const void *address);
    /** source() has told of the rows, and they are not read yet. */
    bool is_being_read(const void *block) const;
    /** All that arrives at `block` may be written into `rows` instead, until remove(). Throws
     * std::bad_alloc. */
    void add_destination(void *block, const StridedRows &rows);
    /** Ends a source or a destination; no effect on other blocks. */
    void remove(const void *block);

    /** The rows into which bytes for a block of `length` bytes at `address` may be written. */
    std::optional<StridedRows> destination(const void *address, size_t length) const;

    struct Source {
        StridedRows rows;
        std::shared_ptr<RowReading> reading;  // kept until they are read
    };
    /** The rows that a block of `length` bytes at `address` stands for; empty where it does not, or
     * is filled. */
    std::optional<Source> source(const void *address, size_t length);

    /** The only source in [address, +length), at `*block`. If there are several, which one key
     * cannot name, they are packed. */
    std::optional<StridedRows> name_source(const void *address, size_t length, const void **block);

    /** Fills the sources that overlap [address, +length). False: the GPU fails, logged. */
    bool pack(const void *address, size_t length) {
        return sources_.empty() || pack_overlapping(address, length);
    }

    /** The bytes that arrived for a destination are in its rows. */
    void set_filled(const void *block);
    bool is_filled(const void *block) const;

private:
    friend RowReading;

    struct View {
        const void *block;
        uint64_t buffer_id;  // MemoryInfo::buffer_id of the block, which may end with its context
        StridedRows rows;    // changed with `packing` and the table's mutex held
        PackRows pack_rows;  // of a source
        std::mutex packing;
        std::atomic<bool> packed{false};  // a source
        std::atomic<bool> filled{false};  // a destination

        // Of a source, protected by the mutex of the tables.
        bool hidden = false;    // nobody is told of the rows any more
        bool told = false;      // by source() or name_source()
        unsigned readings = 0;  // of source(), that have not ended

        /** Whether what lies at the block now may be memory of the application. */
        bool is_gone() const;
        bool may_be_told() const { return !packed && !hidden && !is_gone(); }
    };
    /** Views by their blocks. The mutex protects all but empty(). */
    class Table {
    public:
        bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
        void add(std::shared_ptr<View> view);
        void remove(const void *block);
        /** Null: there is none. */
        std::shared_ptr<View> find(const void *block) const;
        const auto &views() const { return views_; }

    private:
        std::unordered_map<const void *, std::shared_ptr<View>> views_;
        std::atomic<size_t> count_{0};
    };

    static std::shared_ptr<View> make_view(const void *block, const StridedRows &rows,
                                           PackRows pack);
    static std::shared_ptr<View> find_whole(const Table &table, const void *block, size_t length);
    std::vector<std::shared_ptr<View>> unpacked(const void *address, size_t length) const;
    bool pack_overlapping(const void *address, size_t length);
    static bool pack(View &view);

    mutable std::mutex mutex_;  // of both tables; not held while anything is copied
    Table sources_;
    Table destinations_;
};

/** Somebody was told of the rows of a source, and has not read them yet. */
class RowReading {
public:
    RowReading() = default;
    ~RowReading();
    RowReading(const RowReading &) = delete;
    RowReading &operator=(const RowReading &) = delete;

private:
    friend RowViews;

    std::shared_ptr<RowViews::View> view_;
};

}  // namespace gpushm
