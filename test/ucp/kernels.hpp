// SPDX-License-Identifier: BSD-3-Clause
// Work of an application on its own streams: kernels where the driver runs them, and what can stand
// for them where it does not.
#pragma once

#include "cuda_api.hpp"

#include <cstddef>
#include <cstdint>

namespace gpushm::ucp_test {

/** The sum that `Kernels::checksum` makes: of each 32-bit word times its odd number. */
uint32_t checksum_of(const void *data, size_t bytes);

/** In the current context. */
class Kernels {
public:
    Kernels();
    ~Kernels();
    Kernels(const Kernels &) = delete;
    Kernels &operator=(const Kernels &) = delete;

    /** Whether checksum() is one. */
    bool available() const { return checksum_ != nullptr; }
    /** Whether it runs those of wait_for_flag() and fill_gpu(), which the simulated one does too.
     */
    bool can_wait() const { return spin_ != nullptr; }

    /** Reads device memory on a stream of its own that waits for nothing, and returns the checksum
     * of its first `bytes`, a multiple of 4. Without kernels: by a copy on that stream. */
    uint32_t checksum(const void *memory, size_t bytes);

    /** Occupies `stream` until `*flag`, a word of pinned memory, is not 0. False where this driver
     * has nothing that does. */
    bool wait_for_flag(CUstream stream, volatile uint32_t *flag);

    /** Where can_wait(): occupies the whole GPU until `*flag`, a word of pinned or device memory,
     * is not 0. */
    void fill_gpu(CUstream stream, const void *flag);

private:
    void launch_spin(CUstream stream, const void *flag, unsigned grid, unsigned block);

    CUmodule module_ = nullptr;
    CUfunction checksum_ = nullptr;
    CUfunction spin_ = nullptr;
    uint32_t *result_ = nullptr;  // pinned: the sum, or the bytes
    static constexpr size_t kResultBytes = 1 << 20;
};

}  // namespace gpushm::ucp_test
