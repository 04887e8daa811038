// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/type_walk.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

namespace gpushm::openmpi {

TypeWalk::TypeWalk() : convertor_(opal().create(opal().architecture, 0)) {
    own_stack_ = convertor().stack();
    own_stack_size_ = convertor().stack_size();
}

// Convertors are never released, because only inline functions of Open MPI can do that. The pool
// below makes as many as are in use at the same time.
TypeWalk::~TypeWalk() {
    clean();
}

/** Does what the inline function opal_convertor_cleanup() does: a deep datatype has a stack from
 * malloc. */
void TypeWalk::clean() {
    if (convertor().stack() != own_stack_) {
        free(convertor().stack());
        convertor().set_stack(own_stack_, own_stack_size_);
    }
}

void TypeWalk::start(const void *datatype, size_t count, const void *base) {
    clean();
    opal().prepare_for_send(convertor_, datatype, count, base);
    count_ = current_ = 0;
    used_ = position_ = 0;
    has_skipped_ = false;
    at_end_ = convertor().is_completed();
}

size_t TypeWalk::find_element(const void *datatype, size_t count, size_t position) {
    start(datatype, count, nullptr);
    at_end_ = true;
    return convertor().find_element(position);
}

bool TypeWalk::refill() {
    current_ = count_ = 0;
    used_ = 0;
    if (!at_end_) {
        size_t bytes = 0;
        count_ = kBlocks;
        std::fill(std::begin(blocks_), std::end(blocks_), iovec{});
        at_end_ = opal().raw(convertor_, blocks_, &count_, &bytes) != 0;
    }
    return count_ > 0;
}

void TypeWalk::skip(size_t bytes) {
    has_skipped_ = bytes > 0;
    while (position_ < bytes && next(bytes - position_).length > 0) {
    }
}

Block TypeWalk::next(size_t most) {
    while (current_ == count_ || used_ == blocks_[current_].iov_len) {
        if (current_ == count_) {
            if (!refill()) {
                return {nullptr, 0};
            }
        } else {
            ++current_;
            used_ = 0;
        }
    }
    const iovec &block = blocks_[current_];
    const size_t length = std::min(most, block.iov_len - used_);
    char *address = static_cast<char *>(block.iov_base) + used_;
    used_ += length;
    position_ += length;
    return {address, length};
}

namespace {

struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<TypeWalk>> idle;
};

/** Never destroyed: MPI may be used while the process ends. */
Pool &pool() {
    static Pool *const instance = new Pool;
    return *instance;
}

}  // namespace

BorrowedWalk::BorrowedWalk() {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    if (pool().idle.empty()) {
        walk_ = std::make_unique<TypeWalk>();
    } else {
        walk_ = std::move(pool().idle.back());
        pool().idle.pop_back();
    }
}

BorrowedWalk::~BorrowedWalk() {
    if (walk_) {
        const std::lock_guard<std::mutex> lock(pool().mutex);
        pool().idle.push_back(std::move(walk_));
    }
}

}  // namespace gpushm::openmpi
