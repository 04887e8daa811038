// SPDX-License-Identifier: BSD-3-Clause
// Messages between the ranks of a communicator, as Open MPI's collective operations send them: no
// receive or probe of the program matches them, because their tags are negative.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm::openmpi {

/** Call once, before the other functions. False: this Open MPI lacks a function that they need. */
bool find_collective_messages(const OpenMpiLibrary &library);

/** Whether pml/ucx sends the messages. Without it, do not call the functions below. */
bool ucx_sends_messages();

/** Elements of a datatype. */
struct Elements {
    const void *address;
    size_t count;
};

/** Messages to and from a rank of a communicator, within blocking MPI_Allreduce of it. */
class PeerMessages {
public:
    PeerMessages(void *communicator, int peer) : communicator_(communicator), peer_(peer) {}

    /** Sends elements and receives as many as `into` has, both at once. Returns an error class of
     * MPI. */
    int exchange(const Elements &from, const Elements &into, void *datatype) const;
    /** The same with one byte; that of the peer. Empty: MPI has failed. */
    std::optional<unsigned char> exchange_byte(unsigned char byte);

    /** Sends a word, which the peer need not ever take. Returns when UCX has given it to a
     * transport. False: MPI has failed. */
    bool send_notice(uint32_t word) const;
    /** The first word of the peer that was not received yet, if it has arrived. */
    std::optional<uint32_t> take_notice() const;
    /** The same; waits for it. Empty: MPI has failed. */
    std::optional<uint32_t> await_notice() const;

private:
    void *communicator_;
    int peer_;
    unsigned char theirs_ = 0;  // a receive may stay posted if Open MPI cannot send
};

}  // namespace gpushm::openmpi
