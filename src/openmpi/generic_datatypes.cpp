// SPDX-License-Identifier: BSD-3-Clause
// Which MPI_Datatype is behind a generic datatype of UCP.
#include "openmpi/generic_datatypes.hpp"

#include <mutex>

namespace gpushm::openmpi {

GenericDatatypes &GenericDatatypes::instance() {
    // Never destroyed: MPI may be used while the process ends.
    static GenericDatatypes *const datatypes = new GenericDatatypes;
    return *datatypes;
}

void GenericDatatypes::add(ucp_datatype_t generic, const void *datatype) {
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    datatypes_[generic] = datatype;
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
    return found != datatypes_.end() ? found->second : nullptr;
}

}  // namespace gpushm::openmpi
