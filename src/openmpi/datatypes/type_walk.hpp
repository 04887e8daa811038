// SPDX-License-Identifier: BSD-3-Clause
// The blocks of memory that `count` elements of a datatype consist of.
#pragma once

#include "openmpi/binding/opal_datatype.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gpushm::openmpi {

struct Block {
    char *address;
    size_t length;  // bytes
};

/** Goes through the blocks in the order in which they are packed; neighbours in memory that are
 * also neighbours in that order come as one. A convertor of Open MPI does the work, and is used
 * again by the next start(). One thread at a time. */
class TypeWalk {
public:
    TypeWalk();
    ~TypeWalk();
    TypeWalk(const TypeWalk &) = delete;
    TypeWalk &operator=(const TypeWalk &) = delete;

    /** Stands before `count` elements at `base` then. The datatype must live while the walk goes
     * on. */
    void start(const void *datatype, size_t count, const void *base);

    /** The beginning of the element in which byte `position` of them lies; ends a walk that was
     * started. */
    size_t find_element(const void *datatype, size_t count, size_t position);

    /** Bytes that were passed. */
    size_t position() const { return position_; }

    /** Passes blocks until position() is `bytes`, right after start(). */
    void skip(size_t bytes);
    bool has_skipped() const { return has_skipped_; }

    /** The next block, or the beginning of it, of at most `most` bytes; length 0 at the end. */
    Block next(size_t most);

private:
    static constexpr size_t kBlocks = 64;  // asked for at a time

    bool refill();
    void clean();

    void *convertor_;
    void *own_stack_;  // what the convertor had when it was made
    uint32_t own_stack_size_;
    iovec blocks_[kBlocks];
    uint32_t count_ = 0;    // of blocks_ that are filled
    uint32_t current_ = 0;  // of them
    size_t used_ = 0;       // bytes of the current one
    size_t position_ = 0;
    bool at_end_ = true;  // for the convertor
    bool has_skipped_ = false;
};

/** An idle walk of a common pool, given back by the destructor. Thread safe. */
class BorrowedWalk {
public:
    BorrowedWalk();
    ~BorrowedWalk();
    BorrowedWalk(BorrowedWalk &&) = default;
    BorrowedWalk &operator=(BorrowedWalk &&) = default;
    TypeWalk *operator->() const { return walk_.get(); }
    TypeWalk &operator*() const { return *walk_; }

private:
    std::unique_ptr<TypeWalk> walk_;
};

}  // namespace gpushm::openmpi
