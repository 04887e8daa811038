// SPDX-License-Identifier: BSD-3-Clause
// Layouts of datatypes that a program uses again and again, or makes again and again.
#pragma once

#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/datatypes/packed_layout.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpushm::openmpi {

/** The last layouts, found by Open MPI's descriptions of their datatypes: a program may make a
 * datatype for each message, and a datatype that is freed may leave its address to another one.
 * Thread safe. */
class LayoutCache {
public:
    static LayoutCache &instance();

    /** The layout of all elements of `convertor`, made if it is not there, and kept unless it is
     * large. Null: Open MPI's description of the datatype is long, or this Open MPI describes
     * datatypes in an unknown way. Throws std::bad_alloc. */
    std::shared_ptr<const PackedLayout> find(const OpalConvertor &convertor);

private:
    struct Known {
        std::vector<char> description;
        size_t size;
        ptrdiff_t lower_bound;
        ptrdiff_t extent;
        std::shared_ptr<const PackedLayout> layout;
    };

    static bool is_of(const Known &known, const OpalConvertor &convertor);
    void keep(size_t key, Known known);

    std::mutex mutex_;
    size_t pieces_ = 0;  // of all layouts
    std::unordered_map<size_t, Known> datatypes_;
};

}  // namespace gpushm::openmpi
