// SPDX-License-Identifier: BSD-3-Clause
// Finds the MPI_Datatype of a generic datatype of UCP, and the places of its elements.
#pragma once

#include "openmpi/datatypes/packed_layout.hpp"

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

namespace gpushm::openmpi {

/** The generic datatypes that Open MPI has created. Thread safe. */
class GenericDatatypes {
public:
    static GenericDatatypes &instance();

    void add(ucp_datatype_t generic, const void *datatype);
    void remove(ucp_datatype_t generic);

    /** Null: the datatype is not generic, or Open MPI has not created it. */
    const void *find(ucp_datatype_t datatype) const;

    /** The layout of `count` elements of a datatype that find() knows. The last layout of each
     * datatype is kept, unless it is large: doc/decisions/openmpi-datatype-layouts.md. Throws
     * std::bad_alloc. */
    std::shared_ptr<const PackedLayout> layout(ucp_datatype_t datatype, size_t count);

private:
    struct Known {
        const void *datatype;
        std::shared_ptr<const PackedLayout> layout;  // null: none yet
    };

    mutable std::shared_mutex mutex_;
    std::unordered_map<ucp_datatype_t, Known> datatypes_;
};

}  // namespace gpushm::openmpi
