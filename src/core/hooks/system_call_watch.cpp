// SPDX-License-Identifier: BSD-3-Clause
#include "core/hooks/system_call_watch.hpp"

#include "core/base/log.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/pinning/host_registration_cache.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace gpushm {
namespace {

std::atomic<bool> watched{false};

// For prove().
std::atomic<uintptr_t> awaited{0};

void forget(uintptr_t begin, uintptr_t length) {
    if (begin != 0 && begin == awaited.load(std::memory_order_relaxed)) {
        awaited.store(0, std::memory_order_relaxed);
    }
    const auto *address = reinterpret_cast<const void *>(begin);
    KnownHostPages::instance().forget(address, length);
    HostRegistrationCache::instance().invalidate(address, length);
}

void forget_from(uintptr_t begin) {
    forget(begin, UINTPTR_MAX - begin);
}

/** Whether this advice may replace locked pages of private memory of no file. With any other advice
 * Linux leaves such pages where they are, because they are in use. */
bool replaces_pages(uintptr_t advice) {
    constexpr uintptr_t kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED of Linux 5.18
    constexpr uintptr_t kGuardInstall = 102;   // MADV_GUARD_INSTALL of Linux 6.13
    return advice == MADV_DONTNEED || advice == kDontNeedLocked || advice == kGuardInstall;
}

/** `a` to `e` are the arguments, as they are in registers. */
void before_system_call(long number, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,
                        uintptr_t e) {
    switch (number) {
        case SYS_munmap:
            forget(a, b);
            break;
#if defined(SYS_mmap)
        case SYS_mmap:
            if ((d & MAP_FIXED) != 0) {
                forget(a, b);
            }
            break;
#endif
        case SYS_mremap:
            forget(a, b);
            if ((d & MREMAP_FIXED) != 0) {
                forget(e, c);
            }
            break;
        case SYS_madvise:
            if (replaces_pages(c)) {
                forget(a, b);
            }
            break;
        case SYS_process_madvise:
            if (replaces_pages(d)) {
                forget_from(0);  // most likely of another process; the list may be anywhere
            }
            break;
        case SYS_shmat:
            if ((c & SHM_REMAP) != 0) {
                forget_from(b);  // it has no length here
            }
            break;
        default:
            break;
    }
}

ssize_t hooked_process_madvise(int pidfd, const iovec *pieces, size_t count, int advice,
                               unsigned flags) {
    return syscall(SYS_process_madvise, pidfd, pieces, count, advice, flags);  // hooked, too
}

/** Whether the system calls that libucm makes for a function of the C library pass the hook. */
bool prove() {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *const memory = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    awaited.store(reinterpret_cast<uintptr_t>(memory), std::memory_order_relaxed);
    munmap(memory, page);
    return awaited.exchange(0, std::memory_order_relaxed) == 0;
}

}  // namespace
}  // namespace gpushm

#if defined(__x86_64__)

extern "C" {

__attribute__((visibility("hidden"))) void gpushm_before_system_call(long number, uintptr_t a,
                                                                     uintptr_t b, uintptr_t c,
                                                                     uintptr_t d, uintptr_t e) {
    gpushm::before_system_call(number, a, b, c, d, e);
}

__attribute__((visibility("hidden"))) long gpushm_system_call_failed(long result) {
    errno = static_cast<int>(-result);
    return -1;
}

long gpushm_system_call(long number, ...);
}

// Does what syscall() of the C library does. Nothing of it is on the stack during the system call:
// a child of clone(2) may have another stack afterwards.
__asm__(R"(
    .text
    .p2align 4
    .globl gpushm_system_call
    .hidden gpushm_system_call
    .type gpushm_system_call, @function
gpushm_system_call:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call gpushm_before_system_call
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r9
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    movq %rdi, %rax
    movq %rsi, %rdi
    movq %rdx, %rsi
    movq %rcx, %rdx
    movq %r8, %r10
    movq %r9, %r8
    movq 8(%rsp), %r9
    syscall
    cmpq $-4095, %rax
    jae 1f
    ret
1:  movq %rax, %rdi
    jmp gpushm_system_call_failed
    .cfi_endproc
    .size gpushm_system_call, . - gpushm_system_call
)");

#endif

namespace gpushm {
namespace {

#if defined(__x86_64__)

bool install(PatchFunction patch) {
    void *const library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *const call = library == nullptr ? nullptr : dlsym(library, "syscall");
    if (call == nullptr ||
        !patch(call, reinterpret_cast<void *>(&gpushm_system_call), "syscall", nullptr)) {
        return false;
    }
    void *const advise = dlsym(library, "process_madvise");  // of glibc 2.36
    return advise == nullptr || patch(advise, reinterpret_cast<void *>(&hooked_process_madvise),
                                      "process_madvise", nullptr);
}

#else

bool install(PatchFunction) {
    return false;
}

#endif

}  // namespace

bool watch_system_calls(PatchFunction patch) {
    static std::once_flag once;
    std::call_once(once, [patch] {
        watched.store(install(patch) && prove(), std::memory_order_release);
        if (!system_calls_are_watched()) {
            GPUSHM_LOG(debug,
                       "syscall() of the C library cannot be hooked, or memory is unmapped by "
                       "other ways: the "
                       "application's host memory is not page-locked, large copies from and to it "
                       "are slower");
        }
    });
    return system_calls_are_watched();
}

bool system_calls_are_watched() {
    return watched.load(std::memory_order_acquire);
}

}  // namespace gpushm
