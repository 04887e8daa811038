// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/generic_datatypes.hpp"

#include "openmpi/datatypes/type_walk.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace gpushm::openmpi {
namespace {

std::shared_ptr<const PackedLayout> make_layout(const void *datatype, size_t count) {
    std::vector<CopyPiece> pieces;
    ptrdiff_t first_byte = PTRDIFF_MAX;
    ptrdiff_t end = PTRDIFF_MIN;
    uintptr_t packed = 0;
    BorrowedWalk walk;
    walk->start(datatype, count, nullptr);
    for (Block block = walk->next(SIZE_MAX); block.length > 0; block = walk->next(SIZE_MAX)) {
        append_joined(&pieces, {reinterpret_cast<void *>(packed), block.address, block.length});
        packed += block.length;
        const auto begin = reinterpret_cast<ptrdiff_t>(block.address);
        first_byte = std::min(first_byte, begin);
        end = std::max(end, begin + static_cast<ptrdiff_t>(block.length));
    }
    return std::make_shared<PackedLayout>(PackedLayout{count, std::move(pieces), first_byte, end});
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
    constexpr size_t kMaxKept = 4096;  // pieces
    const void *elements = nullptr;
    {
        const std::shared_lock<std::shared_mutex> lock(mutex_);
        const Known &known = datatypes_.at(datatype);
        if (known.layout != nullptr && known.layout->count == count) {
            return known.layout;
        }
        elements = known.datatype;
    }
    std::shared_ptr<const PackedLayout> made = make_layout(elements, count);
    if (made->pieces.size() <= kMaxKept) {
        const std::lock_guard<std::shared_mutex> lock(mutex_);
        datatypes_.at(datatype).layout = made;
    }
    return made;
}

}  // namespace gpushm::openmpi
