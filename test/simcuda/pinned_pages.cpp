// SPDX-License-Identifier: BSD-3-Clause
// Pages of the application that are pinned.
#include "pinned_pages.hpp"

#include <algorithm>
#include <cerrno>
#include <linux/io_uring.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

namespace simcuda {

namespace {

// One ring for all, of one request at a time, which moves bytes between a buffer and a file.
class Ring {
public:
    static Ring &get();

    static constexpr unsigned kBuffers = 1024;
    static constexpr std::size_t kMaxBytes = 1 << 20;  // of one request

    // The index of the buffer; kBuffers if there is none.
    unsigned add(std::uintptr_t address, std::size_t bytes);
    void remove(unsigned index);

    bool read(unsigned index, std::uintptr_t address, std::size_t bytes, char *to);
    bool write(unsigned index, std::uintptr_t address, std::size_t bytes, const char *from);

private:
    Ring();
    bool open();
    bool map(const io_uring_params &params);
    bool update(unsigned index, std::uintptr_t address, std::size_t bytes) const;
    bool move(unsigned char operation, unsigned index, std::uintptr_t address, std::size_t bytes);
    bool submit_and_wait() const;

    std::mutex mutex_;
    int ring_ = -1;
    int file_ = -1;  // through which the bytes pass
    bool usable_ = false;
    std::vector<bool> used_ = std::vector<bool>(kBuffers);
    io_uring_sqe *request_ = nullptr;  // the only one
    unsigned *submitted_ = nullptr;    // the tail of the submission queue
    unsigned *seen_ = nullptr;         // the head of the completion queue
    unsigned *completed_ = nullptr;    // its tail
    const io_uring_cqe *completions_ = nullptr;
    unsigned completion_mask_ = 0;
};

Ring &Ring::get() {
    static Ring &ring = *new Ring;
    return ring;
}

Ring::Ring() {
    usable_ = open();
}

bool Ring::open() {
    io_uring_params params{};
    ring_ = static_cast<int>(syscall(SYS_io_uring_setup, 1, &params));
    file_ = memfd_create("simcuda pinned pages", MFD_CLOEXEC);
    if (ring_ < 0 || file_ < 0 || (params.features & IORING_FEAT_SINGLE_MMAP) == 0 ||
        !map(params)) {
        return false;
    }
    const std::vector<iovec> none(kBuffers);
    return syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS, none.data(), kBuffers) ==
           0;
}

bool Ring::map(const io_uring_params &params) {
    constexpr int kAccess = PROT_READ | PROT_WRITE;
    constexpr int kFlags = MAP_SHARED | MAP_POPULATE;
    const std::size_t queues =
        std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                              params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    void *const both = mmap(nullptr, queues, kAccess, kFlags, ring_, IORING_OFF_SQ_RING);
    void *const requests = mmap(nullptr, params.sq_entries * sizeof(io_uring_sqe), kAccess, kFlags,
                                ring_, IORING_OFF_SQES);
    if (both == MAP_FAILED || requests == MAP_FAILED) {
        return false;
    }
    char *const base = static_cast<char *>(both);
    request_ = static_cast<io_uring_sqe *>(requests);
    submitted_ = reinterpret_cast<unsigned *>(base + params.sq_off.tail);
    seen_ = reinterpret_cast<unsigned *>(base + params.cq_off.head);
    completed_ = reinterpret_cast<unsigned *>(base + params.cq_off.tail);
    completions_ = reinterpret_cast<io_uring_cqe *>(base + params.cq_off.cqes);
    completion_mask_ = params.cq_entries - 1;
    return true;  // the array of indices is zeroes: the only request is number 0
}

bool Ring::update(unsigned index, std::uintptr_t address, std::size_t bytes) const {
    const iovec buffer{reinterpret_cast<void *>(address), bytes};
    io_uring_rsrc_update2 change{};
    change.offset = index;
    change.data = reinterpret_cast<std::uintptr_t>(&buffer);
    change.nr = 1;
    return syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS_UPDATE, &change,
                   sizeof(change)) == 1;
}

unsigned Ring::add(std::uintptr_t address, std::size_t bytes) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto free = std::find(used_.begin(), used_.end(), false);
    const auto index = static_cast<unsigned>(free - used_.begin());
    if (!usable_ || free == used_.end() || !update(index, address, bytes)) {
        return kBuffers;
    }
    *free = true;
    return index;
}

void Ring::remove(unsigned index) {
    const std::lock_guard<std::mutex> guard(mutex_);
    update(index, 0, 0);
    used_[index] = false;
}

// False if there is no completion. A signal ends the wait early, SIGSTOP and SIGCONT too, before or
// after the request has been submitted.
bool Ring::submit_and_wait() const {
    unsigned to_submit = 1;
    while (__atomic_load_n(completed_, __ATOMIC_ACQUIRE) == *seen_) {
        const long submitted =
            syscall(SYS_io_uring_enter, ring_, to_submit, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
        if (submitted < 0 && errno != EINTR) {
            return false;
        }
        to_submit -= submitted > 0 ? 1 : 0;
    }
    return true;
}

bool Ring::move(unsigned char operation, unsigned index, std::uintptr_t address,
                std::size_t bytes) {
    *request_ = {};
    request_->opcode = operation;
    request_->fd = file_;
    request_->addr = address;
    request_->len = static_cast<unsigned>(bytes);
    request_->buf_index = static_cast<unsigned short>(index);
    __atomic_store_n(submitted_, *submitted_ + 1, __ATOMIC_RELEASE);
    if (!submit_and_wait()) {
        return false;
    }
    const unsigned seen = *seen_;
    const int result = completions_[seen & completion_mask_].res;
    __atomic_store_n(seen_, seen + 1, __ATOMIC_RELEASE);
    return result == static_cast<int>(bytes);
}

bool Ring::read(unsigned index, std::uintptr_t address, std::size_t bytes, char *to) {
    const std::lock_guard<std::mutex> guard(mutex_);
    return move(IORING_OP_WRITE_FIXED, index, address, bytes) &&
           pread(file_, to, bytes, 0) == static_cast<ssize_t>(bytes);
}

bool Ring::write(unsigned index, std::uintptr_t address, std::size_t bytes, const char *from) {
    const std::lock_guard<std::mutex> guard(mutex_);
    return pwrite(file_, from, bytes, 0) == static_cast<ssize_t>(bytes) &&
           move(IORING_OP_READ_FIXED, index, address, bytes);
}

}  // namespace

std::unique_ptr<PinnedPages> PinnedPages::pin(std::uintptr_t address, std::size_t bytes) {
    const unsigned index = Ring::get().add(address, bytes);
    return index == Ring::kBuffers ? nullptr : std::unique_ptr<PinnedPages>(new PinnedPages(index));
}

PinnedPages::~PinnedPages() {
    Ring::get().remove(index_);
}

bool PinnedPages::read(std::uintptr_t address, std::size_t bytes, char *to) const {
    for (std::size_t done = 0; done < bytes; done += Ring::kMaxBytes) {
        const std::size_t part = std::min(Ring::kMaxBytes, bytes - done);
        if (!Ring::get().read(index_, address + done, part, to + done)) {
            return false;
        }
    }
    return true;
}

bool PinnedPages::write(std::uintptr_t address, std::size_t bytes, const char *from) const {
    for (std::size_t done = 0; done < bytes; done += Ring::kMaxBytes) {
        const std::size_t part = std::min(Ring::kMaxBytes, bytes - done);
        if (!Ring::get().write(index_, address + done, part, from + done)) {
            return false;
        }
    }
    return true;
}

}  // namespace simcuda
