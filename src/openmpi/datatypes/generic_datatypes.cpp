// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/generic_datatypes.hpp"

#include "openmpi/datatypes/layout_cache.hpp"
#include "openmpi/datatypes/type_walk.hpp"

#include <mutex>
#include <utility>

namespace gpushm::openmpi {
namespace {

std::shared_ptr<const PackedLayout> find_or_make(const void *datatype, size_t count) {
    BorrowedWalk walk;
    walk->start(datatype, count, nullptr);
    std::shared_ptr<const PackedLayout> found = LayoutCache::instance().find(walk->convertor());
    return found != nullptr ? found : make_layout(datatype, count);
}

}  // namespace

GenericDatatypes &GenericDatatypes::instance() {
    // Never destroyed: MPI may be used while the process ends.
    static GenericDatatypes *const datatypes = new GenericDatatypes;
    return *datatypes;
}

void GenericDatatypes::add(ucp_datatype_t generic, const void *datatype) {
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    datatypes_[generic] = {datatype, nullptr};
}

void GenericDatatypes::remove(ucp_datatype_t generic) {
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    datatypes_.erase(generic);
}

const void *GenericDatatypes::find(ucp_datatype_t datatype) const {
    if ((datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_GENERIC) {
        return nullptr;
    }
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = datatypes_.find(datatype);
    return found != datatypes_.end() ? found->second.datatype : nullptr;
}

std::shared_ptr<const PackedLayout> GenericDatatypes::layout(ucp_datatype_t datatype,
                                                             size_t count) {
    const void *elements = nullptr;
    {
        const std::shared_lock<std::shared_mutex> lock(mutex_);
        const Known &known = datatypes_.at(datatype);
        if (known.layout != nullptr && known.layout->count == count) {
            return known.layout;
        }
        elements = known.datatype;
    }
    std::shared_ptr<const PackedLayout> made = find_or_make(elements, count);
    if (made->pieces.size() <= kMaxKeptPieces) {
        const std::lock_guard<std::shared_mutex> lock(mutex_);
        datatypes_.at(datatype).layout = made;
    }
    return made;
}

}  // namespace gpushm::openmpi
