// SPDX-License-Identifier: BSD-3-Clause
// The one region that osc/ucx attaches to a dynamic window, which contains every address
// (doc/design/dynamic-windows.md): the memory that is really attached, and the functions of UCP
// that are replaced in osc/ucx.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/one_sided/attached_regions.hpp"
#include "openmpi/one_sided/whole_region_key.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gpushm::openmpi {

/** Lives from MPI_Win_create_dynamic until osc/ucx unmaps it in MPI_Win_free, after every process
 * of the window has ended its operations. */
class WholeRegion {
public:
    /** What osc/ucx attaches: the range of all addresses that a program can have. */
    static void *base() { return reinterpret_cast<void *>(uintptr_t{1} << 12); }
    static constexpr ptrdiff_t kLength = ptrdiff_t{1} << 62;

    /** Notices whether this thread has mapped memory with UCP since the object was made. */
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

    /** The region that this thread created last; null if it was taken already. */
    static WholeRegion *take_new();

    const RemoteIndex &index() const { return index_; }
    const WholeKey &key() const { return key_; }

    /** Takes the indexes of all processes of the window. */
    void know_indexes(const std::vector<RemoteIndex> &all);

    /** Called by the destructor. */
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

/** Replaces UCP's functions for memory and remote keys in osc/ucx. False, and nothing is replaced,
 * if this UCX lacks one of them. */
bool redirect_window_memory(CallRedirection *redirection);

}  // namespace gpushm::openmpi
