// SPDX-License-Identifier: BSD-3-Clause
// The pages behind registered host memory. A real driver pins them: when the application unmaps the
// range and maps something else there, copies through the stale registration still go to the old
// pages, which nobody sees. Copies here do so too where Linux lets this process pin pages. Where it
// does not, and for kernels, other views of shared mappings stand for the pages, and of private
// mappings it is noticed that they are not those which were registered.
#pragma once

#include "mapping.hpp"
#include "pinned_pages.hpp"

#include <cstdint>
#include <memory>

namespace simcuda {

class KnownHostPages {
public:
    // The range is mapped now. Where neither can be done (no userfaultfd), what is mapped at the
    // address is always taken for what was registered.
    KnownHostPages(std::uintptr_t address, std::size_t bytes);
    ~KnownHostPages();
    KnownHostPages(const KnownHostPages &) = delete;
    KnownHostPages &operator=(const KnownHostPages &) = delete;

    // For copies; null if they could not be pinned.
    const PinnedPages *pinned() const { return pinned_.get(); }

    // Where kernels find them, and copies of what is not pinned.
    char *engine_address() const;

    // Whether the pages of a part of the range are those that were registered.
    bool there(std::uintptr_t address, std::size_t bytes) const;

private:
    bool watch(bool begin) const;

    const std::uintptr_t address_;
    const std::size_t bytes_;
    std::unique_ptr<Mapping> duplicate_;  // of a shared mapping: another view of the pages
    std::unique_ptr<PinnedPages> pinned_;
    bool watched_ = false;
};

// Whether every page of the range is mapped.
bool pages_mapped(std::uintptr_t address, std::size_t bytes);

}  // namespace simcuda
