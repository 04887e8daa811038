// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/matched_receives.hpp"

#include "openmpi/binding/foreign_struct.hpp"

namespace gpushm::openmpi {
namespace {

/** An ompi_request_t (ompi/request/request.h of Open MPI 4.1, 5.0 and 6.0). */
class Request : public ForeignStruct {
public:
    using ForeignStruct::ForeignStruct;

    void *communicator() const { return get<void *>(kCommunicator); }
    void set_communicator(void *comm) { set(kCommunicator, comm); }

private:
    static constexpr size_t kCommunicator = 152;
};

/** An ompi_message_t (ompi/message/message.h of Open MPI 4.1, 5.0 and 6.0). */
class Message : public ForeignStruct {
public:
    using ForeignStruct::ForeignStruct;

    /** Null for MPI_MESSAGE_NO_PROC. */
    void *communicator() const { return get<void *>(64); }
};

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
    const bool is_known = Request(request).communicator() == known.comm_self;
    known.request_free(&request);
    return is_known;
}

int imrecv(void *buffer, int count, void *type, void **message, void **request) {
    static const bool is_known = knows_requests();
    const bool has_message = is_known && message != nullptr && *message != nullptr;
    void *const comm = has_message ? Message(*message).communicator() : nullptr;
    const int result = replaced_by<imrecv>(buffer, count, type, message, request);
    if (comm != nullptr && result == kMpiSuccess) {
        Request(*request).set_communicator(comm);
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
