// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/suspended_walks.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace gpushm::openmpi {
namespace {

constexpr size_t kMaxSuspended = 256;  // messages in progress; more take more time

struct Suspended {
    const void *convertor;
    const void *datatype;
    const void *description;
    const void *base;
    size_t count;
    BorrowedWalk walk;
};

struct Table {
    std::mutex mutex;
    std::deque<Suspended> walks;  // the oldest first
};

Table &table() {
    static Table *const instance = new Table;
    return *instance;
}

std::optional<Suspended> take(const OpalConvertor &convertor) {
    const std::lock_guard<std::mutex> lock(table().mutex);
    auto &walks = table().walks;
    const auto found = std::find_if(walks.begin(), walks.end(), [&](const Suspended &walk) {
        return walk.convertor == convertor.handle();
    });
    if (found == walks.end()) {
        return std::nullopt;
    }
    std::optional<Suspended> taken(std::move(*found));
    walks.erase(found);
    return taken;
}

bool continues(const Suspended &suspended, const OpalConvertor &convertor, size_t begin) {
    return begin > 0 && suspended.walk->position() == begin &&
           suspended.datatype == convertor.datatype().handle() &&
           suspended.description == convertor.description().handle() &&
           suspended.base == convertor.base() && suspended.count == convertor.count();
}

}  // namespace

BorrowedWalk walk_at(const OpalConvertor &convertor, size_t begin) {
    std::optional<Suspended> suspended = take(convertor);
    if (suspended && continues(*suspended, convertor, begin)) {
        return std::move(suspended->walk);
    }
    BorrowedWalk walk;
    walk->start(convertor.datatype().handle(), convertor.count(), convertor.base());
    walk->skip(begin);
    return walk;
}

void suspend(const OpalConvertor &convertor, BorrowedWalk walk) {
    // A convertor that began in the middle is for one piece that came out of order
    // (pml_ucx_datatype.c). A later convertor may have its address and a different datatype.
    if (walk->has_skipped() || convertor.is_completed()) {
        return;
    }
    const std::lock_guard<std::mutex> lock(table().mutex);
    auto &walks = table().walks;
    if (walks.size() == kMaxSuspended) {
        walks.pop_front();
    }
    walks.push_back({convertor.handle(), convertor.datatype().handle(),
                     convertor.description().handle(), convertor.base(), convertor.count(),
                     std::move(walk)});
}

}  // namespace gpushm::openmpi
