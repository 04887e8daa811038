// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/layout_cache.hpp"

#include <cstring>
#include <utility>

namespace gpushm::openmpi {
namespace {

constexpr size_t kMaxDescriptionBytes = 16 << 10;
constexpr size_t kMaxDatatypes = 1024;

}  // namespace

LayoutCache &LayoutCache::instance() {
    // Never destroyed: MPI may be used while the process ends.
    static LayoutCache *const cache = new LayoutCache;
    return *cache;
}

bool LayoutCache::is_of(const Known &known, const OpalConvertor &convertor) const {
    const TypeDescription description = convertor.description();
    const OpalDatatype datatype = convertor.datatype();
    return known.layout->count == convertor.count() && known.size == datatype.size() &&
           known.lower_bound == datatype.lower_bound() && known.extent == datatype.extent() &&
           known.description.size() == description.bytes() &&
           memcmp(known.description.data(), description.elements(), description.bytes()) == 0;
}

std::shared_ptr<const PackedLayout> LayoutCache::find(const OpalConvertor &convertor) {
    const TypeDescription description = convertor.description();
    const OpalDatatype datatype = convertor.datatype();
    if (!opal().knows_descriptions || description.bytes() == 0 ||
        description.bytes() > kMaxDescriptionBytes) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = datatypes_.find(datatype.handle());
    if (found != datatypes_.end() && is_of(found->second, convertor)) {
        return found->second.layout;
    }
    std::shared_ptr<const PackedLayout> made = make_layout(datatype.handle(), convertor.count());
    if (made->pieces.size() > kMaxKeptPieces) {
        return nullptr;
    }
    if (datatypes_.size() >= kMaxDatatypes) {
        datatypes_.clear();
    }
    const auto *begin = static_cast<const char *>(description.elements());
    datatypes_[datatype.handle()] = {{begin, begin + description.bytes()},
                                     datatype.size(),
                                     datatype.lower_bound(),
                                     datatype.extent(),
                                     made};
    return made;
}

}  // namespace gpushm::openmpi
