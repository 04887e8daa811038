// SPDX-License-Identifier: BSD-3-Clause
// Reductions that are collective, of buffers in GPU memory.
//
// Open MPI's algorithms (ompi/mca/coll/base/coll_base_allreduce.c and others) allocate by malloc() what they receive
// into, and touch it by functions only that know GPU memory (convertor_calls.cpp, predefined_operations.cpp,
// user_operations.cpp) and by messages.
#include "openmpi/collective_calls.hpp"

#include "core/device_blocks.hpp"
#include "core/memory_info.hpp"
#include "core/reduction.hpp"
#include "openmpi/mpi_call.hpp"
#include "openmpi/predefined_operations.hpp"
#include "openmpi/staging_limit.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

namespace gpushm::openmpi {
namespace {

// What else a collective operation allocates are lists, of 24 bytes a rank at most (MPI_Status).
constexpr size_t kLeastBytes = 64u << 10;
constexpr size_t kBytesOfRank = 64;

struct World {
    int (*comm_size)(void *communicator, int *size);
    void *communicator;
};
World world;

/** So large an allocation holds data, and is better off in GPU memory. */
size_t least_bytes() {
    static const size_t bytes = [] {
        int ranks = 0;
        world.comm_size(world.communicator, &ranks);
        return std::max(kLeastBytes, kBytesOfRank * static_cast<size_t>(ranks));
    }();
    return std::max(bytes, staging_limit());
}

/** The reduction that this thread calls; it costs nothing until something large is allocated for it. */
class CurrentReduction {
public:
    /** Either buffer may be something else (MPI_IN_PLACE, or of no meaning at all but at the root). */
    CurrentReduction(const void *send, const void *receive, const void *datatype,
                     const void *operation)
        : outer_(current_), send_(send), receive_(receive), datatype_(datatype),
          operation_(operation) {
        current_ = this;
    }
    ~CurrentReduction() { current_ = outer_; }
    CurrentReduction(const CurrentReduction &) = delete;
    CurrentReduction &operator=(const CurrentReduction &) = delete;

    static const CurrentReduction *get() { return current_; }

    /** GPU memory for a part of it; null: host memory is better, or all that there is. */
    void *take(size_t bytes) const {
        MemoryInfo info = query_memory(receive_);
        if (info.kind != MemoryKind::device) {
            info = query_memory(send_);
        }
        // What the CPU computes is better off in host memory.
        return gpus_compute(operation_, datatype_) && gpu_can_reduce(info)
                   ? DeviceBlocks::instance().take(bytes, info)
                   : nullptr;
    }

private:
    static inline thread_local const CurrentReduction *current_ = nullptr;

    const CurrentReduction *outer_;  // within which an operation of the user calls MPI
    const void *send_;
    const void *receive_;
    const void *datatype_;
    const void *operation_;
};

void *allocate(size_t bytes) {
    const CurrentReduction *reduction = CurrentReduction::get();
    void *block =
        reduction != nullptr && bytes >= least_bytes() ? reduction->take(bytes) : nullptr;
    return block != nullptr ? block : malloc(bytes);
}

void release(void *address) {
    DeviceBlocks &blocks = DeviceBlocks::instance();
    if (!blocks.any_taken() || !blocks.give_back(address)) {
        free(address);
    }
}

using Handle = void *;  // MPI_Datatype, MPI_Op, MPI_Comm

/** A function of MPI that begins with these parameters; `Name` tells those with the same parameters apart. */
template <size_t Name, typename Count, typename... Last>
struct Reduction {
    using Function = int (*)(const void *, void *, Count, Handle, Handle, Last...);
    static inline Function original;

    static int call(const void *send, void *receive, Count count, Handle datatype, Handle operation,
                    Last... last) {
        const CurrentReduction current(send, receive, datatype, operation);
        return original(send, receive, count, datatype, operation, last...);
    }
};

using Requests = void **;
using Large = ptrdiff_t;  // MPI_Count

struct Target {
    const OpenMpiLibrary &library;
    CallRedirection *redirection;

    template <size_t Name, typename Count, typename... Last>
    void redirect(const std::string &name) const {
        using Call = Reduction<Name, Count, Last...>;
        redirect_mpi_call(library, redirection, name, &Call::original, &Call::call);
    }

    /** A function, its nonblocking form, and those of both with large counts (MPI 4). */
    template <size_t Name, typename Count, typename LargeCount, typename... Last>
    void redirect_forms(const std::string &name) const {
        const std::string nonblocking =
            std::string("I") + static_cast<char>(tolower(name[0])) + name.substr(1);
        redirect<Name, Count, Last...>(name);
        redirect<Name, Count, Last..., Requests>(nonblocking);
        redirect<Name, LargeCount, Last...>(name + "_c");
        redirect<Name, LargeCount, Last..., Requests>(nonblocking + "_c");
    }
};

}  // namespace

void redirect_collective_calls(const OpenMpiLibrary &library, CallRedirection *redirection) {
    world.communicator = library.as_bound("ompi_mpi_comm_world");
    if (world.communicator == nullptr || !library.mpi("PMPI_Comm_size", &world.comm_size)) {
        return;
    }
    const Target target = {library, redirection};
    target.redirect_forms<0, int, Large, Handle>("Allreduce");
    target.redirect_forms<1, int, Large, int, Handle>("Reduce");
    target.redirect_forms<2, const int *, const Large *, Handle>("Reduce_scatter");
    target.redirect_forms<3, int, Large, Handle>("Reduce_scatter_block");
    target.redirect_forms<4, int, Large, Handle>("Scan");
    target.redirect_forms<5, int, Large, Handle>("Exscan");
    // Open MPI 6.0 has its collectives in libopen_mpi, some are components of their own.
    const std::vector<std::string> collectives = {"libmpi.so", "libopen_mpi.so", "mca_coll_"};
    redirection->add("malloc", reinterpret_cast<void *>(&allocate), collectives);
    redirection->add("free", reinterpret_cast<void *>(&release), collectives);
}

}  // namespace gpushm::openmpi
