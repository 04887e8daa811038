// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/staged_transfer.hpp"

#include <list>
#include <mutex>
#include <utility>

namespace gpushm::openmpi {
namespace {

constexpr char kOperation[] = "a one-sided operation";

struct Kept {
    // Held while data are copied, so that MPI_Win_flush of another thread returns after that.
    // Recursive, because a failed copy calls MPI's error handler, which may call MPI.
    std::recursive_mutex mutex;
    std::list<StagedTransfer> transfers;
    uint64_t count = 0;
};

/** Never destroyed: MPI may be used while the process ends. */
Kept &kept() {
    static Kept *const instance = new Kept;
    return *instance;
}

/** False: the operand is in host memory. Otherwise it becomes a mirror at the end of `mirrors`. */
bool replace(Operand *operand, std::vector<HostMirror> *mirrors) {
    HostMirror mirror(operand->type, operand->count, const_cast<void *>(operand->address));
    if (mirror.base() == operand->address) {
        return false;
    }
    operand->address = mirror.base();
    mirrors->push_back(std::move(mirror));
    return true;
}

}  // namespace

bool StagedTransfer::copy_source(Operand *operand) {
    return !replace(operand, &sources_) || sources_.back().load(kOperation);
}

void StagedTransfer::copy_destination(Operand *operand) {
    replace(operand, &destinations_);
}

void StagedTransfer::deliver() const {
    for (const HostMirror &mirror : destinations_) {
        mirror.store(kOperation);
    }
}

void StagedTransfer::keep(StagedTransfer &&transfer) {
    Kept &known = kept();
    const std::lock_guard<std::recursive_mutex> lock(known.mutex);
    known.transfers.push_back(std::move(transfer));
    known.transfers.back().number_ = ++known.count;
}

uint64_t staged_transfers() {
    const std::lock_guard<std::recursive_mutex> lock(kept().mutex);
    return kept().count;
}

void deliver_staged(void *window, int target, uint64_t count) {
    Kept &known = kept();
    const std::lock_guard<std::recursive_mutex> lock(known.mutex);
    std::list<StagedTransfer> complete;
    for (auto next = known.transfers.begin(); next != known.transfers.end();) {
        const auto transfer = next++;
        if (transfer->window_ == window && transfer->number_ <= count &&
            (target == kEveryTarget || transfer->target_ == target)) {
            complete.splice(complete.end(), known.transfers, transfer);
        }
    }
    for (const StagedTransfer &transfer : complete) {
        transfer.deliver();
    }
}

}  // namespace gpushm::openmpi
