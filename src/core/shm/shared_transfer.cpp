// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/shared_transfer.hpp"

namespace gpushm {
namespace {

constexpr uint64_t kFailed = uint64_t{1} << 31;

uint64_t of(uint32_t id) {
    return static_cast<uint64_t>(id) << 32;
}
uint32_t id_of(uint64_t word) {
    return static_cast<uint32_t>(word >> 32);
}
uint32_t begin_of(uint64_t claims) {
    return claims & 0xffff;
}
uint32_t end_of(uint64_t claims) {
    return (claims >> 16) & 0xffff;
}

/** Whether pieces of the use with this id are left. */
bool claimable(uint64_t claims, uint32_t id) {
    return id_of(claims) == id && begin_of(claims) < end_of(claims);
}

/** Changes the claims of a use of which pieces are left; returns what they were. */
std::optional<uint64_t> claim(std::atomic<uint64_t> &claims, uint32_t id, uint64_t change) {
    uint64_t seen = claims.load(std::memory_order_acquire);
    while (claimable(seen, id)) {
        if (claims.compare_exchange_weak(seen, seen + change, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
            return seen;
        }
    }
    return std::nullopt;
}

}  // namespace

void SharedTransfer::open(uint32_t id, uint32_t pieces) {
    finished.store(of(id), std::memory_order_relaxed);
    claims.store(of(id) | static_cast<uint64_t>(pieces) << 16, std::memory_order_release);
}

std::optional<uint32_t> SharedTransfer::claim_first(uint32_t id) {
    const std::optional<uint64_t> seen = claim(claims, id, 1);
    return seen ? std::optional<uint32_t>(begin_of(*seen)) : std::nullopt;
}

std::optional<uint32_t> SharedTransfer::claim_last(uint32_t id) {
    const std::optional<uint64_t> seen = claim(claims, id, -(uint64_t{1} << 16));
    return seen ? std::optional<uint32_t>(end_of(*seen) - 1) : std::nullopt;
}

uint32_t SharedTransfer::first_of_helper(uint32_t id, uint32_t pieces) const {
    const uint64_t seen = claims.load(std::memory_order_acquire);
    return id_of(seen) == id && end_of(seen) < pieces ? end_of(seen) : pieces;
}

uint32_t SharedTransfer::close(uint32_t id, uint32_t pieces) {
    const uint64_t last = claims.exchange(0, std::memory_order_acq_rel);
    return id_of(last) == id && end_of(last) < pieces ? end_of(last) : pieces;
}

SharedTransfer::Helper SharedTransfer::helper(uint32_t id, uint32_t count) const {
    const uint64_t seen = finished.load(std::memory_order_acquire);
    if (id_of(seen) != id || (seen & kFailed) != 0) {
        return Helper::failed;
    }
    return (seen & (kFailed - 1)) >= count ? Helper::done : Helper::busy;
}

bool SharedTransfer::all_claimed(uint32_t id) const {
    return !claimable(claims.load(std::memory_order_acquire), id);
}

void SharedTransfer::finish(uint32_t id, bool written) {
    uint64_t seen = finished.load(std::memory_order_relaxed);
    while (id_of(seen) == id &&
           !finished.compare_exchange_weak(seen, written ? seen + 1 : (seen + 1) | kFailed,
                                           std::memory_order_release, std::memory_order_relaxed)) {
    }
}

}  // namespace gpushm
