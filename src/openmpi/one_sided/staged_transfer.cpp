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
    std::list<StagedTransfer::Copies> transfers;
    uint64_t count = 0;
};

/** Never destroyed: MPI may be used while the process ends. */
Kept &kept() {
    static Kept *const instance = new Kept;
    return *instance;
}

}  // namespace

/** False: the operand is in host memory. Otherwise it becomes a mirror at the end of `mirrors`. */
bool StagedTransfer::replace(Operand *operand, std::vector<HostMirror> Copies::*mirrors) {
    HostMirror mirror(operand->type, operand->count, const_cast<void *>(operand->address));
    if (mirror.base() == operand->address) {
        return false;
    }
    if (copies_.empty()) {
        copies_.push_back({window_, target_, 0, {}, {}});
    }
    operand->address = mirror.base();
    (copies_.front().*mirrors).push_back(std::move(mirror));
    return true;
}

bool StagedTransfer::copy_source(Operand *operand) {
    return !replace(operand, &Copies::sources) || copies_.front().sources.back().load(kOperation);
}

void StagedTransfer::copy_destination(Operand *operand) {
    replace(operand, &Copies::destinations);
}

void StagedTransfer::Copies::deliver() const {
    for (const HostMirror &mirror : destinations) {
        mirror.store(kOperation);
    }
}

void StagedTransfer::deliver() const {
    for (const Copies &copies : copies_) {
        copies.deliver();
    }
}

void StagedTransfer::keep(StagedTransfer &&transfer) {
    Kept &known = kept();
    const std::lock_guard<std::recursive_mutex> lock(known.mutex);
    known.transfers.splice(known.transfers.end(), transfer.copies_);
    known.transfers.back().number = ++known.count;
}

uint64_t staged_transfers() {
    const std::lock_guard<std::recursive_mutex> lock(kept().mutex);
    return kept().count;
}

void deliver_staged(void *window, int target, uint64_t count) {
    Kept &known = kept();
    const std::lock_guard<std::recursive_mutex> lock(known.mutex);
    std::list<StagedTransfer::Copies> complete;
    for (auto next = known.transfers.begin(); next != known.transfers.end();) {
        const auto transfer = next++;
        if (transfer->window == window && transfer->number <= count &&
            (target == kEveryTarget || transfer->target == target)) {
            complete.splice(complete.end(), known.transfers, transfer);
        }
    }
    for (const StagedTransfer::Copies &transfer : complete) {
        transfer.deliver();
    }
}

}  // namespace gpushm::openmpi
