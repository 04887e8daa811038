// SPDX-License-Identifier: BSD-3-Clause
// Copies between host buffers, by where their bytes are in the caches: memcpy, and
// process_vm_readv from another process.
#include "micro.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace gpushm::perf {
namespace {

// More than the caches of a socket hold.
constexpr size_t kBeyondCaches = 512u << 20;
constexpr size_t kLargest = 16u << 20;

/** Memory of which all pages exist. */
class Pages {
public:
    explicit Pages(size_t bytes)
        : bytes_(bytes),
          address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {}
    ~Pages() {
        if (exist()) {
            munmap(address_, bytes_);
        }
    }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    bool exist() const { return address_ != MAP_FAILED; }
    char *at(size_t offset) const { return static_cast<char *>(address_) + offset; }

private:
    size_t bytes_;
    void *address_;
};

/** The places of `length` bytes, one after the other, in as much memory as there is. */
class Places {
public:
    Places(size_t length, size_t memory)
        : stride_((length + 4095) & ~size_t{4095}), count_(std::max<size_t>(memory / stride_, 1)) {}
    size_t memory() const { return stride_ * count_; }
    size_t next() {
        at_ = (at_ + 1) % count_;
        return at_ * stride_;
    }

private:
    size_t stride_;
    size_t count_;
    size_t at_ = 0;
};

class Memcpy {
public:
    bool copy(char *destination, const char *source, size_t length) const {
        memcpy(destination, source, length);
        benchmark::ClobberMemory();
        return true;
    }
};

/** From a forked process, whose pages are at the same addresses. */
class ProcessVmReadv {
public:
    ProcessVmReadv() : owner_(fork()) {
        if (owner_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
    }
    ~ProcessVmReadv() {
        kill(owner_, SIGKILL);
        waitpid(owner_, nullptr, 0);
    }
    ProcessVmReadv(const ProcessVmReadv &) = delete;
    ProcessVmReadv &operator=(const ProcessVmReadv &) = delete;

    bool copy(char *destination, char *source, size_t length) const {
        const iovec here = {destination, length};
        const iovec there = {source, length};
        return process_vm_readv(owner_, &here, 1, &there, 1, 0) == static_cast<ssize_t>(length);
    }

private:
    const pid_t owner_;
};

/** `cached`: the same buffers each time; else each copy reads and writes other ones. */
template <typename Copier>
void copy_between_hosts(benchmark::State &state, bool cached) {
    const auto length = static_cast<size_t>(state.range(0));
    Places places(length, cached ? 0 : kBeyondCaches / 2);
    const Pages source(places.memory()), destination(places.memory());
    if (!source.exist() || !destination.exist()) {
        state.SkipWithError("not enough memory");
        return;
    }
    const Copier copier;
    for (auto _ : state) {
        const size_t place = places.next();
        if (!copier.copy(destination.at(place), source.at(place), length)) {
            state.SkipWithError(strerror(errno));
            break;
        }
    }
    count_bytes(state, length);
}

template <typename Copier>
void register_copies(const std::string &name, bool cached) {
    benchmark::RegisterBenchmark((name + (cached ? "/cached" : "/in_memory")).c_str(),
                                 copy_between_hosts<Copier>, cached)
        ->RangeMultiplier(8)
        ->Range(8, kLargest);
}

}  // namespace

void register_host_copies() {
    for (const bool cached : {true, false}) {
        register_copies<Memcpy>("memcpy", cached);
        register_copies<ProcessVmReadv>("process_vm_readv", cached);
    }
}

}  // namespace gpushm::perf
