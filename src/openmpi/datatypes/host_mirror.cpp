// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/host_mirror.hpp"

#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/datatypes/type_walk.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace gpushm::openmpi {
namespace {

// A mirror has the alignment of the original: it begins at the original's offset from this.
constexpr uintptr_t kAlignment = 64;

// Larger mirrors are mapped, and use memory only for their elements: absolute addresses of the
// stack and of the heap are 40 TB apart.
constexpr size_t kMaxOnHeap = 1u << 20;

bool is_any_in_gpu(const std::vector<CopyPiece> &pieces) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [](const CopyPiece &piece) { return is_gpu_memory(piece.source); });
}

}  // namespace

void HostMirror::Free::operator()(char *memory) const {
    if (mapped != 0) {
        munmap(memory, mapped);
    } else {
        free(memory);
    }
}

HostMirror::Memory HostMirror::allocate(size_t bytes) {
    if (bytes <= kMaxOnHeap) {
        return Memory(static_cast<char *>(aligned_alloc(kAlignment, bytes)));
    }
    void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return Memory(memory != MAP_FAILED ? static_cast<char *>(memory) : nullptr, Free(bytes));
}

HostMirror::HostMirror(const void *datatype, size_t count, void *base) : base_(base) {
    if (count == 0 || !is_gpu_memory(OpalDatatype(datatype), base)) {
        return;
    }
    BorrowedWalk walk;
    walk->start(datatype, count, base);
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;
    for (Block block = walk->next(SIZE_MAX); block.length > 0; block = walk->next(SIZE_MAX)) {
        begin = std::min(begin, reinterpret_cast<uintptr_t>(block.address));
        end = std::max(end, reinterpret_cast<uintptr_t>(block.address) + block.length);
        to_mirror_.push_back({nullptr, block.address, block.length});
    }
    if (to_mirror_.empty() || (base == nullptr && !is_any_in_gpu(to_mirror_))) {
        to_mirror_.clear();
        return;
    }
    begin &= ~(kAlignment - 1);
    const size_t bytes = (end - begin + kAlignment - 1) & ~(kAlignment - 1);
    memory_ = allocate(bytes);
    if (memory_ == nullptr) {
        throw std::bad_alloc();
    }
    for (CopyPiece &piece : to_mirror_) {
        piece.destination = memory_.get() + (reinterpret_cast<uintptr_t>(piece.source) - begin);
    }
    // Wraps around if the elements are far from their base.
    base_ = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(base) - begin +
                                     reinterpret_cast<uintptr_t>(memory_.get()));
}

bool HostMirror::load(const char *operation) const {
    return copy_or_report(to_mirror_, operation);
}

bool HostMirror::store(const char *operation) const {
    std::vector<CopyPiece> back;
    back.reserve(to_mirror_.size());
    for (const CopyPiece &piece : to_mirror_) {
        back.push_back({const_cast<void *>(piece.source), piece.destination, piece.length});
    }
    return copy_or_report(back, operation);
}

}  // namespace gpushm::openmpi
