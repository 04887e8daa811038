// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations whose buffers lie in GPU memory, and which work on copies in host memory
// until they are complete.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"
#include "openmpi/datatypes/host_mirror.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpushm::openmpi {

/** Elements as MPI's functions name them. */
struct Operand {
    const void *address;
    size_t count;
    void *type;
};

/** One operation on `target`'s part of `window`. Belongs to the thread that calls MPI. */
class StagedTransfer {
public:
    StagedTransfer(void *window, int target) : window_(window), target_(target) {}
    StagedTransfer(StagedTransfer &&) = default;
    StagedTransfer &operator=(StagedTransfer &&) = default;

    /** Has the operation read a copy of `*operand`, or write one, where that is in GPU memory.
     * False when the GPU fails, which has been reported. Throws std::bad_alloc. */
    bool copy_source(Operand *operand);
    void copy_destination(Operand *operand);

    bool has_copies() const { return !sources_.empty() || !destinations_.empty(); }

    /** It has been started: it lives on until deliver_staged(). */
    static void keep(StagedTransfer &&transfer);

    /** It is complete: what it wrote goes where it belongs. */
    void deliver() const;

private:
    friend void deliver_staged(void *window, int target, uint64_t count);

    void *window_;
    int target_;
    uint64_t number_ = 0;  // the how-manieth that was kept
    std::vector<HostMirror> sources_;
    std::vector<HostMirror> destinations_;
};

constexpr int kEveryTarget = -1;

/** How many have been kept. */
uint64_t staged_transfers();

/** Ends those on `target`, all targets if kEveryTarget, that were among the first `count` to be
 * kept, and are complete now: those of other threads that came later may not be. */
void deliver_staged(void *window, int target, uint64_t count);

}  // namespace gpushm::openmpi
