// SPDX-License-Identifier: BSD-3-Clause
// A copy in host memory of elements that lie in GPU memory, for code that only the CPU can run.
#pragma once

#include "core/copy_pieces.hpp"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace gpushm::openmpi {

/** Holds `count` elements of `datatype`, with the gaps between them, which are never copied. Where `base` is
 *  no GPU memory the mirror is that memory itself, and nothing is copied. */
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
    struct Free {
        void operator()(char *memory) const { free(memory); }
    };

    void *base_;
    std::unique_ptr<char, Free> memory_;  // not initialised
    std::vector<CopyPiece> to_mirror_;
};

}  // namespace gpushm::openmpi
