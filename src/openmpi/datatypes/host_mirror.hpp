// SPDX-License-Identifier: BSD-3-Clause
// A copy in host memory of elements that lie in GPU memory, for code that only the CPU can run.
#pragma once

#include "core/copy/copy_pieces.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace gpushm::openmpi {

/** Holds `count` elements of `datatype`, with the gaps between them, which are never copied. Where
 * none of it is in GPU memory the mirror is that memory itself, and nothing is copied. A type of
 * absolute addresses (MPI_BOTTOM) may join memory of all kinds. */
class HostMirror {
public:
    /** Throws std::bad_alloc. */
    HostMirror(const void *datatype, size_t count, void *base);

    HostMirror(HostMirror &&) = default;
    HostMirror &operator=(HostMirror &&) = default;

    /** In place of `base`. */
    void *base() const { return base_; }

    /** From GPU memory, and back to it; false when the GPU fails, which has been reported then. */
    bool load(const char *operation) const;
    bool store(const char *operation) const;

private:
    /** Of an allocation by malloc, or of a mapping of so many bytes. */
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
