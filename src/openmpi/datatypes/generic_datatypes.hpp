// SPDX-License-Identifier: BSD-3-Clause
// Which MPI_Datatype is behind a generic datatype of UCP, and where its elements are.
#pragma once

#include "core/copy/copy_pieces.hpp"

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace gpushm::openmpi {

/** How `count` elements are packed. Addresses begin at 0: the sources' where the buffer begins, the
 * destinations' where the packed bytes begin. */
struct PackedLayout {
    size_t count;
    std::vector<CopyPiece> pieces;
    ptrdiff_t first_byte;  // of the elements, from the buffer's beginning
    ptrdiff_t end;         // behind their last byte
};

/** Those that Open MPI has made. Thread safe. */
class GenericDatatypes {
public:
    static GenericDatatypes &instance();

    void add(ucp_datatype_t generic, const void *datatype);
    void remove(ucp_datatype_t generic);

    /** Null for one that is not generic, and for somebody else's. */
    const void *find(ucp_datatype_t datatype) const;

    /** Of a datatype that find() knows. To go through its elements takes 40 ns a block, so the last
     * layout of each is kept, unless it is large. Throws std::bad_alloc. */
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
