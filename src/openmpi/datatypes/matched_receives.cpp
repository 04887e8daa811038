// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/matched_receives.hpp"

#include "uct_gpushm/abi/struct_layout.hpp"

#include <cstddef>

namespace gpushm::openmpi {
namespace {

/** The communicators in an ompi_request_t (ompi/request/request.h of Open MPI 4.1, 5.0 and 6.0) and
 * in an ompi_message_t (ompi/message/message.h), where it is null for MPI_MESSAGE_NO_PROC. */
constexpr size_t kOfRequest = 152;
constexpr size_t kOfMessage = 64;

struct State {
    int (*recv_init)(void *buffer, int count, void *type, int source, int tag, void *comm,
                     void **request);
    int (*request_free)(void **request);
    void *comm_self;
    void *byte;
};
State known;

/** Whether requests have the expected layout. In a debug build of Open MPI more members come before
 * the communicator. */
bool knows_requests() {
    void *request = nullptr;
    if (known.recv_init(nullptr, 0, known.byte, 0, 0, known.comm_self, &request) != kMpiSuccess) {
        return false;
    }
    const bool is_known = abi::load<void *>(request, kOfRequest) == known.comm_self;
    known.request_free(&request);
    return is_known;
}

int imrecv(void *buffer, int count, void *type, void **message, void **request) {
    static const bool is_known = knows_requests();
    const bool has_message = is_known && message != nullptr && *message != nullptr;
    void *const comm = has_message ? abi::load<void *>(*message, kOfMessage) : nullptr;
    const int result = replaced_by<imrecv>(buffer, count, type, message, request);
    if (comm != nullptr && result == kMpiSuccess) {
        abi::store(*request, kOfRequest, comm);
    }
    return result;
}

}  // namespace

void redirect_matched_receives(const MpiTarget &target) {
    const OpenMpiLibrary &library = target.library;
    known.comm_self = library.as_bound("ompi_mpi_comm_self");
    known.byte = library.as_bound("ompi_mpi_byte");
    if (known.comm_self != nullptr && known.byte != nullptr &&
        library.mpi("PMPI_Recv_init", &known.recv_init) &&
        library.mpi("PMPI_Request_free", &known.request_free)) {
        target.redirect<imrecv>("Imrecv");
    }
}

}  // namespace gpushm::openmpi
