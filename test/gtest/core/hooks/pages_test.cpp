// SPDX-License-Identifier: BSD-3-Clause
// A GPU never reads pages that the program has not any more: in every way in which pages behind an
// address change, memory that gpushm has page-locked is unlocked before, or was not locked.
#include "core/base/unique_fd.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/pinning/host_registration_cache.hpp"

#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/hooks/hooks_support.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 1 << 20;
constexpr int kAccess = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED of Linux 5.18
constexpr int kGuardInstall = 102;   // MADV_GUARD_INSTALL of Linux 6.13
constexpr int kGuardRemove = 103;

/** `change` is false where Linux does not know it. */
struct Case {
    const char *name;
    std::function<bool(unsigned char *memory)> change;
};

bool maps_over(unsigned char *memory) {
    return mmap(memory, kBytes, kAccess, kPrivate | MAP_FIXED, -1, 0) == memory;
}

/** Another mapping is moved to where the memory is. */
bool move_over(unsigned char *memory, bool by_function) {
    void *const other = mmap(nullptr, kBytes, kAccess, kPrivate, -1, 0);
    if (other == MAP_FAILED) {
        return false;
    }
    constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
    void *const moved =
        by_function
            ? mremap(other, kBytes, kBytes, kFlags, memory)
            : reinterpret_cast<void *>(syscall(SYS_mremap, other, kBytes, kBytes, kFlags, memory));
    return moved == memory;
}

bool advise_twice(unsigned char *memory, int first, int second) {
    return madvise(memory, kBytes, first) == 0 && madvise(memory, kBytes, second) == 0;
}

/** Where this glibc has it. */
long process_advise(unsigned char *memory, int advice, bool by_function) {
    const UniqueFd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    const iovec piece = {memory, kBytes};
    using Function = ssize_t (*)(int, const iovec *, size_t, int, unsigned);
    static const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "process_madvise"));
    if (by_function) {
        return function == nullptr ? -1 : function(self.get(), &piece, 1, advice, 0);
    }
    return syscall(SYS_process_madvise, self.get(), &piece, 1, advice, 0);
}

const std::vector<Case> &changes() {
    static const std::vector<Case> all = {
        {"munmap",
         [](unsigned char *memory) { return munmap(memory, kBytes) == 0 && maps_over(memory); }},
        {"munmap of a part",
         [](unsigned char *memory) { return munmap(memory, 4096) == 0 && maps_over(memory); }},
        {"mmap", maps_over},
        {"mremap away",
         [](unsigned char *memory) {
             void *const moved = mremap(memory, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
             return moved != MAP_FAILED && munmap(moved, kBytes) == 0;
         }},
        {"mremap that shrinks",
         [](unsigned char *memory) {
             return mremap(memory, kBytes, kBytes / 2, 0) == memory && maps_over(memory);
         }},
        {"MADV_DONTNEED",
         [](unsigned char *memory) { return madvise(memory, kBytes, MADV_DONTNEED) == 0; }},
        {"MADV_DONTNEED_LOCKED",
         [](unsigned char *memory) { return madvise(memory, kBytes, kDontNeedLocked) == 0; }},
        {"MADV_GUARD_INSTALL",
         [](unsigned char *memory) { return advise_twice(memory, kGuardInstall, kGuardRemove); }},
        {"process_madvise",
         [](unsigned char *memory) { return process_advise(memory, MADV_DONTNEED, true) > 0; }},
        {"shmat over it",
         [](unsigned char *memory) {
             const int segment = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
             void *const attached = shmat(segment, memory, SHM_REMAP);
             shmctl(segment, IPC_RMID, nullptr);
             return attached == memory;
         }},
        {"syscall: munmap and mmap",
         [](unsigned char *memory) {
             return syscall(SYS_munmap, memory, kBytes) == 0 &&
                    syscall(SYS_mmap, memory, kBytes, kAccess, kPrivate | MAP_FIXED, -1, 0) != -1;
         }},
        {"syscall: mmap over it",
         [](unsigned char *memory) {
             return syscall(SYS_mmap, memory, kBytes, kAccess, kPrivate | MAP_FIXED, -1, 0) != -1;
         }},
        {"syscall: mremap over it", [](unsigned char *memory) { return move_over(memory, false); }},
        {"syscall: mremap away",
         [](unsigned char *memory) {
             const long moved = syscall(SYS_mremap, memory, kBytes, kBytes,
                                        MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
             return moved != -1 && munmap(reinterpret_cast<void *>(moved), kBytes) == 0;
         }},
        {"syscall: madvise",
         [](unsigned char *memory) {
             return syscall(SYS_madvise, memory, kBytes, MADV_DONTNEED) == 0;
         }},
        {"syscall: process_madvise",
         [](unsigned char *memory) { return process_advise(memory, MADV_DONTNEED, false) > 0; }},
        {"syscall: shmat over it",
         [](unsigned char *memory) {
             const int segment = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
             const long attached = syscall(SYS_shmat, segment, memory, SHM_REMAP);
             shmctl(segment, IPC_RMID, nullptr);
             return attached != -1;
         }},
        // What locked pages outlast.
        {"mprotect",
         [](unsigned char *memory) {
             return mprotect(memory, kBytes, PROT_NONE) == 0 &&
                    mprotect(memory, kBytes, kAccess) == 0;
         }},
        {"MADV_FREE",
         [](unsigned char *memory) { return madvise(memory, kBytes, MADV_FREE) == 0; }},
        {"MADV_PAGEOUT",
         [](unsigned char *memory) { return madvise(memory, kBytes, MADV_PAGEOUT) == 0; }},
        {"MADV_MERGEABLE",
         [](unsigned char *memory) { return madvise(memory, kBytes, MADV_MERGEABLE) == 0; }},
        {"MADV_WIPEONFORK and a fork",
         [](unsigned char *memory) {
             return madvise(memory, kBytes, MADV_WIPEONFORK) == 0 &&
                    children_that_end_well(1, [] { return 0; }) == 1;
         }},
        {"a fork",
         [](unsigned char *) { return children_that_end_well(1, [] { return 0; }) == 1; }},
    };
    return all;
}

class HookedPages : public HookedTest {
protected:
    void SetUp() override {
        HookedTest::SetUp();
        pins_.enable(16 * kBytes);
    }
    ~HookedPages() override { pins_.enable(0); }

    bool is_locked(const unsigned char *memory) {
        HostRegistrationCache::Hold hold;
        for (int use = 0; use < 2; ++use) {
            hold = pins_.acquire(query_memory(memory), memory, kBytes, context_, 1);
        }
        return hold != nullptr;
    }

    /** That a GPU finds there what this process does, and writes where it reads. */
    void expect_same_pages(unsigned char *memory, const char *name) {
        const Buffer device(MemoryKind::device, kBytes);
        memset(memory, 0x5a, kBytes);
        ASSERT_EQ(to_gpu_(device_pointer(device.data()), memory, kBytes), CUDA_SUCCESS) << name;
        const std::vector<unsigned char> sent = read(device, kBytes);
        EXPECT_EQ(memcmp(memory, sent.data(), kBytes), 0) << name << ": old data";
        memset(memory, 0, kBytes);
        ASSERT_EQ(to_host_(memory, device_pointer(device.data()), kBytes), CUDA_SUCCESS) << name;
        EXPECT_EQ(memcmp(memory, sent.data(), kBytes), 0) << name << ": written to old pages";
    }

    HostRegistrationCache &pins_ = HostRegistrationCache::instance();
    CUresult (*const to_gpu_)(CUdeviceptr, const void *, size_t) =
        cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t)>("cuMemcpyHtoD_v2");
    CUresult (*const to_host_)(void *, CUdeviceptr, size_t) =
        cuda_function<CUresult (*)(void *, CUdeviceptr, size_t)>("cuMemcpyDtoH_v2");
};

TEST_F(HookedPages, ThatAreLockedAreThoseOfTheProcess) {
    for (const Case &each : changes()) {
        void *const mapped = mmap(nullptr, kBytes, kAccess, kPrivate, -1, 0);
        auto *const memory = static_cast<unsigned char *>(mapped);
        ASSERT_NE(mapped, MAP_FAILED);
        memset(memory, 1, kBytes);
        EXPECT_TRUE(is_locked(memory)) << each.name;
        if (each.change(memory)) {
            expect_same_pages(memory, each.name);
        }
        munmap(memory, kBytes);
    }
}

/** They may change without a call that names their address. */
TEST_F(HookedPages, OfFilesAreNotLocked) {
    for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
        const UniqueFd file(memfd_create("pages of files", MFD_CLOEXEC));
        ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
        void *const mapped = mmap(nullptr, kBytes, kAccess, flags, file.get(), 0);
        auto *const memory = static_cast<unsigned char *>(mapped);
        ASSERT_NE(mapped, MAP_FAILED);
        memset(memory, 1, kBytes);
        EXPECT_FALSE(is_locked(memory));
        EXPECT_EQ(fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
        expect_same_pages(memory, "a hole");
        EXPECT_TRUE(ftruncate(file.get(), 0) == 0 && ftruncate(file.get(), kBytes) == 0);
        expect_same_pages(memory, "truncated");
        if (flags == MAP_SHARED) {
            EXPECT_EQ(madvise(memory, kBytes, MADV_REMOVE), 0);
            expect_same_pages(memory, "MADV_REMOVE");
        }
        munmap(memory, kBytes);
    }
}

TEST_F(HookedPages, OfWhichTheDriverNeedNotBeAskedAreForgotten) {
    KnownHostPages &pages = KnownHostPages::instance();
    void *const memory = mmap(nullptr, kBytes, kAccess, kPrivate, -1, 0);
    pages.add(memory);
    ASSERT_TRUE(pages.contains(memory));
    EXPECT_EQ(syscall(SYS_munmap, memory, kBytes), 0);
    EXPECT_FALSE(pages.contains(memory));
}

// ---------------------------------------------------------------- syscall() is what it was

TEST_F(HookedPages, SystemCallsReturnWhatTheyDid) {
    errno = 0;
    EXPECT_EQ(syscall(SYS_close, -1), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(syscall(SYS_getpid), getpid());
    // The sixth argument is on the stack.
    const UniqueFd file(memfd_create("two pages", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(file.get(), 8192), 0);
    ASSERT_EQ(pwrite(file.get(), "x", 1, 4096), 1);
    const auto mapped = reinterpret_cast<void *>(
        syscall(SYS_mmap, nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), off_t{4096}));
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(*static_cast<char *>(mapped), 'x');
    munmap(mapped, 4096);
}

TEST_F(HookedPages, SystemCallsMayReturnTwice) {
    const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child == 0) {
        syscall(SYS_exit_group, 7);
    }
    int status = 0;
    ASSERT_EQ(waitpid(static_cast<pid_t>(child), &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace gpushm
