// SPDX-License-Identifier: BSD-3-Clause
// Walks over datatypes of messages that are packed or unpacked piece by piece.
#include "openmpi/datatypes/suspended_walks.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace gpushm::openmpi {
namespace {

constexpr size_t kMaxSuspended = 256;  // messages under way; more cost time only

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
           suspended.description == convertor.description() && suspended.base == convertor.base() &&
           suspended.count == convertor.count();
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
    // What began in the middle is a convertor for one piece that came out of order
    // (pml_ucx_datatype.c): another one may lie at its address later, for a datatype that looks the
    // same and is not.
    if (walk->has_skipped() || convertor.is_completed()) {
        return;
    }
    const std::lock_guard<std::mutex> lock(table().mutex);
    auto &walks = table().walks;
    if (walks.size() == kMaxSuspended) {
        walks.pop_front();
    }
    walks.push_back({convertor.handle(), convertor.datatype().handle(), convertor.description(),
                     convertor.base(), convertor.count(), std::move(walk)});
}

}  // namespace gpushm::openmpi
