// SPDX-License-Identifier: BSD-3-Clause
// Walks over the blocks of memory that the elements of a datatype consist of.
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

/** Returns the blocks in the order in which they are packed. Adjacent blocks that follow each other
 * in that order are one. Uses a convertor of Open MPI, which start() uses again. One thread at a
 * time. */
class TypeWalk {
public:
    TypeWalk();
    ~TypeWalk();
    TypeWalk(const TypeWalk &) = delete;
    TypeWalk &operator=(const TypeWalk &) = delete;

    /** Begins a walk over `count` elements at `base`. The datatype must exist during the walk. */
    void start(const void *datatype, size_t count, const void *base);

    /** Prepared for the walk that start() began. */
    OpalConvertor convertor() const { return OpalConvertor(convertor_, opal().layout); }

    /** The position of the begin of the element that contains byte `position`. Ends a walk that was
     * started. */
    size_t find_element(const void *datatype, size_t count, size_t position);

    /** The number of bytes that were passed. */
    size_t position() const { return position_; }

    /** Passes blocks until position() is `bytes`. Only directly after start(). */
    void skip(size_t bytes);
    bool has_skipped() const { return has_skipped_; }

    /** The next block, or its first `most` bytes. Length 0: the end. */
    Block next(size_t most);

private:
    static constexpr size_t kBlocks = 64;  // requested from the convertor at a time

    bool refill();
    void clean();

    void *convertor_;
    void *own_stack_;  // the stack with which the convertor was made
    uint32_t own_stack_size_;
    iovec blocks_[kBlocks];
    uint32_t count_ = 0;    // filled blocks_
    uint32_t current_ = 0;  // index of the next block
    size_t used_ = 0;       // bytes of that block that were passed
    size_t position_ = 0;
    bool at_end_ = true;  // the convertor has no more blocks
    bool has_skipped_ = false;
};

/** A walk from a pool. The destructor returns it. Thread safe. */
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
