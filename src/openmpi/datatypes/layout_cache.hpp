// SPDX-License-Identifier: BSD-3-Clause
// Layouts of datatypes that a program uses again and again, or makes again and again.
#pragma once

#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/datatypes/packed_layout.hpp"

#include <cstddef>
#include <cstdint>
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
    /** What tells two layouts from each other besides the elements of their descriptions. */
    struct Outline {
        size_t count;
        size_t size;
        ptrdiff_t lower_bound;
        ptrdiff_t extent;
        uint16_t flags;

        explicit Outline(const OpalConvertor &convertor);
        bool operator==(const Outline &other) const;
    };
    struct Known {
        Outline outline;
        std::vector<TypeDescription::Element> elements;
        std::shared_ptr<const PackedLayout> layout;

        Known(const OpalConvertor &convertor, std::shared_ptr<const PackedLayout> of);
        bool is_of(const OpalConvertor &convertor) const;
        size_t bytes() const;
    };

    static size_t key_of(const OpalConvertor &convertor);
    std::shared_ptr<const PackedLayout> known_layout(size_t key, const OpalConvertor &convertor);
    void keep(size_t key, Known known);

    std::mutex mutex_;
    size_t bytes_ = 0;  // of all that is kept
    std::unordered_map<size_t, Known> datatypes_;
};

}  // namespace gpushm::openmpi
