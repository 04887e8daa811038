// SPDX-License-Identifier: BSD-3-Clause
// Memory of several origins.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <thread>

namespace gpushm::test {

/** Anonymous memory, unmapped at the end; null where it cannot be. `at`: there and nowhere else,
 * unless null. */
class Mapping {
public:
    explicit Mapping(size_t length, int protection = PROT_READ | PROT_WRITE, void *at = nullptr)
        : length_(length),
          data_(mmap(at, length, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED_NOREPLACE), -1,
                     0)) {}
    ~Mapping() {
        if (data() != nullptr) {
            munmap(data_, length_);
        }
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    std::byte *data() const {
        return data_ == MAP_FAILED ? nullptr : static_cast<std::byte *>(data_);
    }

private:
    const size_t length_;
    void *const data_;
};

/** Not with the address sanitizer, whose heaps are simply mapped. */
inline bool malloc_is_glibcs() {
    Dl_info found;
    Dl_info libc;
    return dladdr(dlsym(RTLD_DEFAULT, "malloc"), &found) != 0 &&
           dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &libc) != 0 &&
           found.dli_fbase == libc.dli_fbase;
}

/** A piece of a heap that is not the main one. */
inline std::shared_ptr<std::byte> allocate_in_thread(size_t bytes) {
    void *data = nullptr;
    std::thread([&] { data = malloc(bytes); }).join();
    return {static_cast<std::byte *>(data), free};
}

}  // namespace gpushm::test
