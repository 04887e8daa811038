// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations on buffers in GPU memory, which use copies in host memory until they are
// complete.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"
#include "openmpi/datatypes/host_mirror.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace gpushm::openmpi {

/** Elements in the parameters of MPI's functions. */
struct Operand {
    const void *address;
    size_t count;
    void *type;
};

/** One operation on the part of `window` in `target`. Belongs to the thread that calls MPI. */
class StagedTransfer {
public:
    StagedTransfer(void *window, int target) : window_(window), target_(target) {}
    StagedTransfer(StagedTransfer &&) = default;
    StagedTransfer &operator=(StagedTransfer &&) = default;

    /** If `*operand` is in GPU memory, replaces it by a copy in host memory, which the operation
     * reads or writes. False, reported to MPI: the GPU failed. Throws std::bad_alloc. */
    bool copy_source(Operand *operand);
    void copy_destination(Operand *operand);

    bool has_copies() const { return !copies_.empty(); }

    /** The operation has started: keeps the copies until deliver_staged(). Allocates nothing, for
     * Open MPI uses the copies. */
    static void keep(StagedTransfer &&transfer);

    /** The operation is complete: copies its results to GPU memory. */
    void deliver() const;

    struct Copies {
        void *window;
        int target;
        uint64_t number;  // counts calls of keep(), from 1 on
        std::vector<HostMirror> sources;
        std::vector<HostMirror> destinations;

        void deliver() const;
    };

private:
    bool replace(Operand *operand, std::vector<HostMirror> Copies::*mirrors);

    void *window_;
    int target_;
    std::list<Copies> copies_;  // at most one
};

constexpr int kEveryTarget = -1;

/** The number of calls of StagedTransfer::keep(). */
uint64_t staged_transfers();

/** Delivers the operations on `target`, or on all targets for kEveryTarget, among the first `count`
 * that were kept. The caller knows that these are complete; later ones of other threads may not be.
 */
void deliver_staged(void *window, int target, uint64_t count);

}  // namespace gpushm::openmpi
