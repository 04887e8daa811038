// SPDX-License-Identifier: BSD-3-Clause
#include "failing_malloc.hpp"

#include <link.h>
#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GPUSHM_OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define GPUSHM_OWN_MALLOC 0
#endif
#endif
#ifndef GPUSHM_OWN_MALLOC
#define GPUSHM_OWN_MALLOC 1
#endif

namespace {

uintptr_t code_begin = 0;
uintptr_t code_end = 0;
pthread_t failing_thread;
volatile long countdown = -1;  // of that thread; negative: none fails any more

bool fails(const void *caller) {
    const auto address = reinterpret_cast<uintptr_t>(caller);
    if (countdown < 0 || address < code_begin || address >= code_end ||
        pthread_equal(pthread_self(), failing_thread) == 0) {
        return false;
    }
    countdown = countdown - 1;
    return countdown < 0;
}

/** The code of the object whose path has `name` in it. */
int find_code(dl_phdr_info *object, size_t, void *name) {
    if (std::strstr(object->dlpi_name, static_cast<const char *>(name)) == nullptr) {
        return 0;
    }
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr) &part = object->dlpi_phdr[i];
        if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) {
            code_begin = object->dlpi_addr + part.p_vaddr;
            code_end = code_begin + part.p_memsz;
        }
    }
    return 1;
}

}  // namespace

#if GPUSHM_OWN_MALLOC
extern "C" {
void *__libc_malloc(size_t size);
__attribute__((visibility("default"))) void *malloc(size_t size) {
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return nullptr;
    }
    return __libc_malloc(size);
}
}
#endif

namespace gpushm::test {

bool malloc_can_fail() {
    return GPUSHM_OWN_MALLOC != 0;
}

FailingMalloc::FailingMalloc(const char *library, unsigned n) {
    dl_iterate_phdr(find_code, const_cast<char *>(library));
    failing_thread = pthread_self();
    countdown = static_cast<long>(n);
}

FailingMalloc::~FailingMalloc() {
    countdown = -1;
}

bool FailingMalloc::has_failed() const {
    return countdown < 0;
}

}  // namespace gpushm::test
