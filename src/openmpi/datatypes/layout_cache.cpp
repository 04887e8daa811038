// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/layout_cache.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

namespace gpushm::openmpi {
namespace {

constexpr size_t kMaxDescriptionBytes = 16 << 10;
constexpr size_t kMaxPieces = 256 << 10;  // 12 MiB

/** The same for datatypes of equal descriptions. Differs for most others. */
size_t key_of(const OpalConvertor &convertor) {
    constexpr size_t kHashedBytes = 4 * TypeDescription::kElementBytes;
    const TypeDescription description = convertor.description();
    const auto *first = static_cast<const char *>(description.elements());
    const size_t bytes = std::min(description.bytes(), kHashedBytes);
    const std::hash<std::string_view> hash;
    return hash({first, bytes}) ^ (hash({first + description.bytes() - bytes, bytes}) << 1) ^
           convertor.local_size();
}

}  // namespace

LayoutCache &LayoutCache::instance() {
    // Never destroyed: MPI may be used while the process ends.
    static LayoutCache *const cache = new LayoutCache;
    return *cache;
}

bool LayoutCache::is_of(const Known &known, const OpalConvertor &convertor) {
    const TypeDescription description = convertor.description();
    const OpalDatatype datatype = convertor.datatype();
    return known.layout->count == convertor.count() && known.size == datatype.size() &&
           known.lower_bound == datatype.lower_bound() && known.extent == datatype.extent() &&
           known.description.size() == description.bytes() &&
           memcmp(known.description.data(), description.elements(), description.bytes()) == 0;
}

void LayoutCache::keep(size_t key, Known known) {
    const auto old = datatypes_.find(key);
    if (old != datatypes_.end()) {
        pieces_ -= old->second.layout->pieces.size();
        datatypes_.erase(old);
    }
    const size_t pieces = known.layout->pieces.size();
    if (pieces_ + pieces > kMaxPieces) {
        datatypes_.clear();
        pieces_ = 0;
    }
    datatypes_.emplace(key, std::move(known));
    pieces_ += pieces;
}

std::shared_ptr<const PackedLayout> LayoutCache::find(const OpalConvertor &convertor) {
    const TypeDescription description = convertor.description();
    const OpalDatatype datatype = convertor.datatype();
    if (!opal().knows_descriptions || description.bytes() == 0 ||
        description.bytes() > kMaxDescriptionBytes) {
        return nullptr;
    }
    const size_t key = key_of(convertor);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = datatypes_.find(key);
    if (found != datatypes_.end() && is_of(found->second, convertor)) {
        return found->second.layout;
    }
    std::shared_ptr<const PackedLayout> made = make_layout(datatype.handle(), convertor.count());
    if (made->pieces.size() <= kMaxKeptPieces) {
        const auto *begin = static_cast<const char *>(description.elements());
        keep(key, {{begin, begin + description.bytes()},
                   datatype.size(),
                   datatype.lower_bound(),
                   datatype.extent(),
                   made});
    }
    return made;
}

}  // namespace gpushm::openmpi
