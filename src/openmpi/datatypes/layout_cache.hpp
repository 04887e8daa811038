// SPDX-License-Identifier: BSD-3-Clause
// Layouts of datatypes that are packed or unpacked as a whole again and again (MPI_Pack).
#pragma once

#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/datatypes/packed_layout.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpushm::openmpi {

/** The last layout of each datatype. A datatype may be freed, and another one may have its address.
 * So a layout is that of a datatype only if Open MPI describes both in the same way. Thread safe.
 */
class LayoutCache {
public:
    static LayoutCache &instance();

    /** The layout of all elements of `convertor`, made if it is not there. Null: it is too large to
     * be kept, or this Open MPI describes datatypes in an unknown way. Throws std::bad_alloc. */
    std::shared_ptr<const PackedLayout> find(const OpalConvertor &convertor);

private:
    struct Known {
        std::vector<char> description;
        size_t size;
        ptrdiff_t lower_bound;
        ptrdiff_t extent;
        std::shared_ptr<const PackedLayout> layout;
    };

    bool is_of(const Known &known, const OpalConvertor &convertor) const;

    std::mutex mutex_;
    std::unordered_map<const void *, Known> datatypes_;
};

}  // namespace gpushm::openmpi
