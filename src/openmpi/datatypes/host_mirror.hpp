// SPDX-License-Identifier: BSD-3-Clause
// A copy in host memory of elements in GPU memory, for code that only the CPU can run.
#pragma once

#include "core/copy/copy_pieces.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace gpushm::openmpi {

/** Has `count` elements of `datatype` with the gaps between them, which are not copied. If no
 * element is in GPU memory the mirror is the original memory, and nothing is copied. A datatype of
 * absolute addresses (MPI_BOTTOM) may use several kinds of memory. */
class HostMirror {
public:
    /** Throws std::bad_alloc. */
    HostMirror(const void *datatype, size_t count, void *base);

    HostMirror(HostMirror &&) = default;
    HostMirror &operator=(HostMirror &&) = default;

    /** The address to use instead of `base`. */
    void *base() const { return base_; }

    /** Copies from GPU memory, and back to it. False, reported to MPI: the GPU failed. */
    bool load(const char *operation) const;
    bool store(const char *operation) const;

private:
    /** Frees memory of malloc, or unmaps `mapped` bytes. */
    struct Free {
        Free() {}
        explicit Free(size_t bytes) : mapped(bytes) {}
        void operator()(char *memory) const;
        size_t mapped{0};
    };
    using Memory = std::unique_ptr<char, Free>;
    static Memory allocate(size_t bytes);

    void *base_;
    Memory memory_;  // not initialised
    std::vector<CopyPiece> to_mirror_;
};

}  // namespace gpushm::openmpi
