// SPDX-License-Identifier: BSD-3-Clause
// Which MPI_Datatype is behind a generic datatype of UCP.
#pragma once

#include <ucp/api/ucp.h>

#include <shared_mutex>
#include <unordered_map>

namespace gpushm::openmpi {

/** Those that Open MPI has made. Thread safe. */
class GenericDatatypes {
public:
    static GenericDatatypes &instance();

    void add(ucp_datatype_t generic, const void *datatype);
    void remove(ucp_datatype_t generic);

    /** Null for one that is not generic, and for somebody else's. */
    const void *find(ucp_datatype_t datatype) const;

private:
    mutable std::shared_mutex mutex_;
    std::unordered_map<ucp_datatype_t, const void *> datatypes_;
};

}  // namespace gpushm::openmpi
