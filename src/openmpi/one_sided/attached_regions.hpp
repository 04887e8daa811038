// SPDX-License-Identifier: BSD-3-Clause
// The memory that this process has attached to one dynamic window: registered with UCX, and in the
// log that the other processes read.
#pragma once

#include "openmpi/binding/ucp_functions.hpp"
#include "openmpi/one_sided/region_log.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gpushm::openmpi {

/** A registration of memory with UCX. The destructor ends it. */
class Registration {
public:
    static ucs_status_t create(ucp_context_h context, void *address, size_t length,
                               std::unique_ptr<Registration> *registration);
    ~Registration();
    Registration(const Registration &) = delete;
    Registration &operator=(const Registration &) = delete;

    const std::vector<unsigned char> &key() const { return key_; }

private:
    Registration(ucp_context_h context, ucp_mem_h memory) : context_(context), memory_(memory) {}
    ucs_status_t pack();

    ucp_context_h context_;
    ucp_mem_h memory_;
    std::vector<unsigned char> key_;
};

/** Pages that gpushm allocates and registers. */
class RegisteredPages {
public:
    static ucs_status_t create(ucp_context_h context, size_t bytes,
                               std::unique_ptr<RegisteredPages> *pages);
    ~RegisteredPages();
    RegisteredPages(const RegisteredPages &) = delete;
    RegisteredPages &operator=(const RegisteredPages &) = delete;

    unsigned char *address() const { return static_cast<unsigned char *>(address_); }

    /** False: the key is too long. */
    bool describe(PackedRegion *region) const;

private:
    RegisteredPages(void *address, size_t bytes) : address_(address), bytes_(bytes) {}

    void *address_;
    size_t bytes_;
    std::unique_ptr<Registration> registration_;
};

/** Thread safe. */
class AttachedRegions {
public:
    static ucs_status_t create(ucp_context_h context, std::unique_ptr<AttachedRegions> *regions);

    /** The place of the RegionIndex, for the other processes. */
    const PackedRegion &index() const { return index_region_; }

    /** `length` may be 0. Memory may be attached several times. */
    ucs_status_t attach(void *address, size_t length);

    /** UCS_ERR_NO_ELEM: no attached memory begins at `address`. */
    ucs_status_t detach(const void *address);

private:
    struct Region {
        uint64_t id;
        size_t length;
        std::unique_ptr<Registration> registration;  // null: the length is 0
    };
    using Regions = std::multimap<uintptr_t, Region>;

    explicit AttachedRegions(ucp_context_h context) : context_(context) {}
    RegionIndex &shared_index() {
        return *reinterpret_cast<RegionIndex *>(index_pages_->address());
    }
    ucs_status_t tell(const Regions::value_type &region, bool is_attached);
    ucs_status_t begin_log(size_t more);
    ucs_status_t prepare_log(uint64_t log);
    void append(const Regions::value_type &region, bool is_attached, LogHeader *header);
    void publish(const LogHeader &header);

    std::mutex mutex_;
    ucp_context_h context_;
    std::unique_ptr<RegisteredPages> index_pages_;
    std::unique_ptr<RegisteredPages> log_pages_[kLogs];
    PackedRegion index_region_;
    LogHeader header_;  // the header in the index, except `sequence`
    Regions regions_;
    uint64_t last_id_ = 0;
};

}  // namespace gpushm::openmpi
