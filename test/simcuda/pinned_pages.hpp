// SPDX-License-Identifier: BSD-3-Clause
// Pages of the application that are pinned as a real driver pins what is registered: they stay the
// same whatever is mapped at their addresses later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace simcuda {

// Linux pins the buffers of an io_uring in the same way (pin_user_pages, FOLL_LONGTERM). The ring
// then reads and writes the pages, not the addresses.
class PinnedPages {
public:
    // Null if Linux does not permit it: io_uring is disabled, the limit of locked memory is
    // reached, the range is of a file on a disk or is longer than 1 GiB.
    static std::unique_ptr<PinnedPages> pin(std::uintptr_t address, std::size_t bytes);
    ~PinnedPages();
    PinnedPages(const PinnedPages &) = delete;
    PinnedPages &operator=(const PinnedPages &) = delete;

    // A part of the range, by the addresses that it had. False if Linux fails.
    bool read(std::uintptr_t address, std::size_t bytes, char *to) const;
    bool write(std::uintptr_t address, std::size_t bytes, const char *from) const;

private:
    explicit PinnedPages(unsigned index) : index_(index) {}

    const unsigned index_;  // in the ring's table of buffers
};

}  // namespace simcuda
