// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/layout_cache.hpp"

#include <utility>

namespace gpushm::openmpi {
namespace {

constexpr size_t kMaxElements = 512;      // of a description: 16 KiB
constexpr size_t kMaxBytes = 16u << 20;   // of all that is kept
constexpr size_t kBytesOfDatatype = 400;  // of one piece, without its elements

uint64_t mixed(uint64_t hash, uint64_t word) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
    hash = (hash ^ word) * kOdd;
    return hash ^ hash >> 32;
}

}  // namespace

LayoutCache &LayoutCache::instance() {
    // Never destroyed: MPI may be used while the process ends.
    static LayoutCache *const cache = new LayoutCache;
    return *cache;
}

LayoutCache::Outline::Outline(const OpalConvertor &convertor)
    : count(convertor.count()),
      size(convertor.datatype().size()),
      lower_bound(convertor.datatype().lower_bound()),
      extent(convertor.datatype().extent()),
      flags(convertor.datatype().flags_of_layout()) {}

bool LayoutCache::Outline::operator==(const Outline &other) const {
    return count == other.count && size == other.size && lower_bound == other.lower_bound &&
           extent == other.extent && flags == other.flags;
}

LayoutCache::Known::Known(const OpalConvertor &convertor, std::shared_ptr<const PackedLayout> of)
    : outline(convertor), layout(std::move(of)) {
    const TypeDescription description = convertor.description();
    elements.reserve(description.count());
    for (size_t i = 0; i < description.count(); ++i) {
        elements.push_back(description.element(i));
    }
}

bool LayoutCache::Known::is_of(const OpalConvertor &convertor) const {
    const TypeDescription description = convertor.description();
    bool same = outline == Outline(convertor) && elements.size() == description.count();
    for (size_t i = 0; same && i < elements.size(); ++i) {
        same = elements[i] == description.element(i);
    }
    return same;
}

size_t LayoutCache::Known::bytes() const {
    return kBytesOfDatatype + elements.size() * sizeof(elements[0]) +
           layout->pieces.size() * sizeof(layout->pieces[0]);
}

/** Equal for equal layouts, and differs for most others. */
size_t LayoutCache::key_of(const OpalConvertor &convertor) {
    const Outline outline(convertor);
    const TypeDescription description = convertor.description();
    TypeDescription::Element words = {outline.count, outline.size,
                                      static_cast<uint64_t>(outline.extent),
                                      static_cast<uint64_t>(outline.lower_bound)};
    // Four at a time, which do not wait for each other.
    for (size_t i = 0; i < description.count(); ++i) {
        const TypeDescription::Element element = description.element(i);
        for (size_t word = 0; word < words.size(); ++word) {
            words[word] = mixed(words[word], element[word]);
        }
    }
    return mixed(mixed(mixed(words[0], words[1]), words[2]), words[3]);
}

std::shared_ptr<const PackedLayout> LayoutCache::known_layout(size_t key,
                                                              const OpalConvertor &convertor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = datatypes_.find(key);
    return found != datatypes_.end() && found->second.is_of(convertor) ? found->second.layout
                                                                       : nullptr;
}

/** Replaces what has the same key. */
void LayoutCache::keep(size_t key, Known known) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto old = datatypes_.find(key);
    if (old != datatypes_.end()) {
        bytes_ -= old->second.bytes();
        datatypes_.erase(old);
    }
    const size_t bytes = known.bytes();
    if (bytes_ + bytes > kMaxBytes) {
        datatypes_.clear();
        bytes_ = 0;
    }
    datatypes_.emplace(key, std::move(known));
    bytes_ += bytes;
}

std::shared_ptr<const PackedLayout> LayoutCache::find(const OpalConvertor &convertor) {
    const TypeDescription description = convertor.description();
    if (!opal().knows_descriptions || description.count() == 0 ||
        description.count() > kMaxElements) {
        return nullptr;
    }
    const size_t key = key_of(convertor);
    std::shared_ptr<const PackedLayout> layout = known_layout(key, convertor);
    if (layout == nullptr) {
        layout = make_layout(convertor.datatype().handle(), convertor.count());
        if (layout->pieces.size() <= kMaxKeptPieces) {
            keep(key, Known(convertor, layout));
        }
    }
    return layout;
}

}  // namespace gpushm::openmpi
