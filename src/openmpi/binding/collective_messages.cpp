// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/collective_messages.hpp"

#include "openmpi/binding/mpi_call.hpp"

#include <dlfcn.h>

#include <algorithm>

namespace gpushm::openmpi {
namespace {

// Tags of ompi/mca/coll/base/coll_tags.h, equal in Open MPI 4.1, 5.0 and 6.0. Collective operations
// use those from -7 downwards; mpi.h gives a meaning to those from -1 to -4.
constexpr int kTagOfAllreduce = -12;  // MCA_COLL_BASE_TAG_ALLREDUCE
constexpr int kTagOfNotice = -6;
constexpr int kStandardMode = 4;  // MCA_PML_BASE_SEND_STANDARD of ompi/mca/pml/pml_constants.h

// In Open MPI 4.1, 5.0 and 6.0: ompi/mca/coll/base/coll_base_util.h and ompi/mca/pml/ucx/pml_ucx.h.
// A null status is MPI_STATUS_IGNORE.
using SendReceive = int (*)(const void *from, size_t from_count, void *from_type, int destination,
                            int from_tag, void *into, size_t into_count, void *into_type,
                            int source, int into_tag, void *communicator, void *status);
using Send = int (*)(const void *from, size_t count, void *datatype, int destination, int tag,
                     int mode, void *communicator);
using Receive = int (*)(void *into, size_t count, void *datatype, int source, int tag,
                        void *communicator, void *status);
using Probe = int (*)(int source, int tag, void *communicator, int *matched, void *status);

SendReceive send_receive = nullptr;
void *const *selected = nullptr;  // mca_pml of ompi/mca/pml/pml.h: pointers to functions come first
void *byte_type = nullptr;

struct Ucx {
    Send send = nullptr;
    Receive receive = nullptr;
    Probe probe = nullptr;
};

template <typename Function>
void find(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
}

/** The functions of pml/ucx: in a file of its own, or in a library of Open MPI. */
Ucx find_ucx() {
    Ucx found;
    for (const char *file : {"mca_pml_ucx.so", "libmpi.so", "libopen_mpi.so"}) {
        void *const library = found.probe == nullptr ? open_loaded_library({file}) : nullptr;
        if (library != nullptr) {
            find(library, "mca_pml_ucx_send", &found.send);
            find(library, "mca_pml_ucx_recv", &found.receive);
            find(library, "mca_pml_ucx_iprobe", &found.probe);
        }
    }
    return found;
}

/** Called first when Open MPI has selected its component. */
const Ucx &ucx() {
    static const Ucx functions = find_ucx();
    return functions;
}

}  // namespace

bool find_collective_messages(const OpenMpiLibrary &library) {
    selected = static_cast<void *const *>(library.as_bound("mca_pml"));
    byte_type = library.as_bound("ompi_mpi_byte");
    return library.mpi("ompi_coll_base_sendrecv_actual", &send_receive) && selected != nullptr &&
           byte_type != nullptr;
}

bool ucx_sends_messages() {
    constexpr size_t kFunctions = 15;  // up to those that probe
    void *const probe = reinterpret_cast<void *>(ucx().probe);
    return probe != nullptr && ucx().send != nullptr && ucx().receive != nullptr &&
           std::find(selected, selected + kFunctions, probe) != selected + kFunctions;
}

int PeerMessages::exchange(const Elements &from, const Elements &into, void *datatype) const {
    return send_receive(from.address, from.count, datatype, peer_, kTagOfAllreduce,
                        const_cast<void *>(into.address), into.count, datatype, peer_,
                        kTagOfAllreduce, communicator_, nullptr);
}

std::optional<unsigned char> PeerMessages::exchange_byte(unsigned char byte) {
    const int result = exchange({&byte, 1}, {&theirs_, 1}, byte_type);
    return result == kMpiSuccess ? std::optional(theirs_) : std::nullopt;
}

bool PeerMessages::send_notice(uint32_t word) const {
    return ucx().send(&word, sizeof(word), byte_type, peer_, kTagOfNotice, kStandardMode,
                      communicator_) == kMpiSuccess;
}

std::optional<uint32_t> PeerMessages::take_notice() const {
    constexpr int kLooks = 1000;  // each makes progress
    int matched = 0;
    for (int look = 0; look < kLooks && matched == 0; ++look) {
        if (ucx().probe(peer_, kTagOfNotice, communicator_, &matched, nullptr) != kMpiSuccess) {
            return std::nullopt;
        }
    }
    return matched != 0 ? await_notice() : std::nullopt;
}

std::optional<uint32_t> PeerMessages::await_notice() const {
    uint32_t word = 0;
    const int result =
        ucx().receive(&word, sizeof(word), byte_type, peer_, kTagOfNotice, communicator_, nullptr);
    return result == kMpiSuccess ? std::optional(word) : std::nullopt;
}

}  // namespace gpushm::openmpi
