// SPDX-License-Identifier: BSD-3-Clause
// Messages that a rank matches first and receives then.
#include "host_programs.hpp"

#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr int kTag = 7;
constexpr int kLong = 100000;

struct Neighbours {
    int next;
    int previous;
};

Neighbours neighbours_in(MPI_Comm comm) {
    int rank;
    int size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    return {(rank + 1) % size, (rank + size - 1) % size};
}

int class_of(int error) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(error, &error_class);
    return error_class;
}

/** A ring's requests while they are under way: of a send, and of a receive into room for `room`
 * elements. */
struct Ring {
    std::vector<int> sent;
    std::vector<int> received;
    MPI_Request requests[2];

    Ring(MPI_Comm comm, int count, int room)
        : sent(static_cast<size_t>(count)), received(static_cast<size_t>(room), -1) {
        const Neighbours to = neighbours_in(comm);
        for (int i = 0; i < count; i++) {
            sent[static_cast<size_t>(i)] = i;
        }
        MPI_Message message;
        MPI_Isend(sent.data(), count, MPI_INT, to.next, kTag, comm, &requests[0]);
        MPI_Mprobe(to.previous, kTag, comm, &message, MPI_STATUS_IGNORE);
        MPI_Imrecv(received.data(), room, MPI_INT, &message, &requests[1]);
    }

    bool has_arrived() const { return received == sent; }
};

bool waits_for_all(MPI_Comm comm, int count) {
    Ring ring(comm, count, count);
    MPI_Waitall(2, ring.requests, MPI_STATUSES_IGNORE);
    return ring.has_arrived();
}

bool tests_all(MPI_Comm comm, int count) {
    Ring ring(comm, count, count);
    for (int done = 0; done == 0;) {
        MPI_Testall(2, ring.requests, &done, MPI_STATUSES_IGNORE);
    }
    return ring.has_arrived();
}

bool waits_for_some(MPI_Comm comm, int count) {
    Ring ring(comm, count, count);
    int indices[2];
    for (int left = 2; left != 0;) {
        int done;
        MPI_Waitsome(2, ring.requests, &done, indices, MPI_STATUSES_IGNORE);
        left -= done;
    }
    return ring.has_arrived();
}

/** A request whose message is too long for its buffer has the error handler of its communicator
 * called. A short one: pml/ob1 writes long ones past the buffer's end. */
bool reports_truncation(MPI_Comm comm) {
    Ring ring(comm, 100, 50);
    MPI_Wait(&ring.requests[0], MPI_STATUS_IGNORE);
    return class_of(MPI_Wait(&ring.requests[1], MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE;
}

}  // namespace

void run_matched() {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int count : {0, 1, kLong}) {
        const std::string name = "matched, " + std::to_string(count);
        report(comm, name + ", MPI_Waitall", waits_for_all(comm, count));
        report(comm, name + ", MPI_Testall", tests_all(comm, count));
        report(comm, name + ", MPI_Waitsome", waits_for_some(comm, count));
    }
    report(comm, "matched, too long", reports_truncation(comm));
    MPI_Comm_free(&comm);
    // A request is not to keep the communicator that it was used for before.
    report(MPI_COMM_WORLD, "matched after that", waits_for_all(MPI_COMM_WORLD, 1));
}

}  // namespace gpushm::mpi_test
