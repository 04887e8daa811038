// SPDX-License-Identifier: BSD-3-Clause
// What osc/ucx takes for one attached region that holds every address
// (doc/design/dynamic-windows.md): the memory that is really attached, and the redirected functions
// of UCP that osc/ucx reaches it by.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/one_sided/attached_regions.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gpushm::openmpi {

/** How a process finds the regions of another one. It goes between processes. */
struct RemoteIndex {
    uint64_t id = 0;  // of the whole region in the process that it comes from; 0: there is none
    PackedRegion region;
};

/** In place of the packed remote key of a whole region. No key of UCX begins so, but with a map of
 * few memory domains. */
struct WholeKey {
    static constexpr uint64_t kMark = 0xd1a3c6e5b7f92d4b;
    uint64_t mark;
    uint64_t id;
};

/** From MPI_Win_create_dynamic until osc/ucx unmaps it in MPI_Win_free, when every process of the
 * window has ended its operations. */
class WholeRegion {
public:
    /** The region that osc/ucx is to attach. Every address that a program can have lies in it. */
    static void *base() { return reinterpret_cast<void *>(uintptr_t{1} << 12); }
    static constexpr ptrdiff_t kLength = ptrdiff_t{1} << 62;

    /** Whether this thread's calls since then have mapped memory with UCP. */
    class Watch {
    public:
        Watch() { maps_ = 0; }
        bool has_mapped() const { return maps_ > 0; }
        static void note() { ++maps_; }

    private:
        static thread_local unsigned maps_;
    };

    static ucs_status_t create(ucp_context_h context, WholeRegion **region);
    ~WholeRegion();
    WholeRegion(const WholeRegion &) = delete;
    WholeRegion &operator=(const WholeRegion &) = delete;

    /** The one that this thread has created last; null when it was taken. */
    static WholeRegion *take_new();

    const RemoteIndex &index() const { return index_; }
    const WholeKey &key() const { return key_; }

    /** Of all processes of the window. */
    void know_indexes(std::vector<RemoteIndex> all);

    void on_end(std::function<void()> action) { on_end_ = std::move(action); }

    ucs_status_t attach(void *address, size_t length) { return regions_->attach(address, length); }
    ucs_status_t detach(const void *address) { return regions_->detach(address); }

private:
    explicit WholeRegion(std::unique_ptr<AttachedRegions> regions);

    std::unique_ptr<AttachedRegions> regions_;
    RemoteIndex index_;
    WholeKey key_;
    std::vector<uint64_t> peers_;  // ids
    std::function<void()> on_end_;
};

/** False when this UCX lacks one of the functions. */
bool redirect_window_memory(CallRedirection *redirection);

}  // namespace gpushm::openmpi
