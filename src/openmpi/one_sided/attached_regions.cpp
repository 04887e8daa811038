// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/attached_regions.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace gpushm::openmpi {

// ---------------------------------------------------------------- registered memory

ucs_status_t Registration::create(ucp_context_h context, void *address, size_t length,
                                  std::unique_ptr<Registration> *registration) {
    ucp_mem_map_params_t params = {};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = address;
    params.length = length;
    ucp_mem_h memory = nullptr;
    const ucs_status_t status = ucp().mem_map(context, &params, &memory);
    if (status != UCS_OK) {
        return status;
    }
    registration->reset(new (std::nothrow) Registration(context, memory));
    if (*registration == nullptr) {
        ucp().mem_unmap(context, memory);
        return UCS_ERR_NO_MEMORY;
    }
    return (*registration)->pack();
}

Registration::~Registration() {
    ucp().mem_unmap(context_, memory_);
}

ucs_status_t Registration::pack() {
    void *buffer = nullptr;
    size_t bytes = 0;
    const ucs_status_t status = ucp().rkey_pack(context_, memory_, &buffer, &bytes);
    if (status == UCS_OK) {
        const auto *key = static_cast<const unsigned char *>(buffer);
        key_.assign(key, key + bytes);
        ucp().rkey_buffer_release(buffer);
    }
    return status;
}

ucs_status_t RegisteredPages::create(ucp_context_h context, size_t bytes,
                                     std::unique_ptr<RegisteredPages> *pages) {
    void *const address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        return UCS_ERR_NO_MEMORY;
    }
    pages->reset(new (std::nothrow) RegisteredPages(address, bytes));
    if (*pages == nullptr) {
        munmap(address, bytes);
        return UCS_ERR_NO_MEMORY;
    }
    return Registration::create(context, address, bytes, &(*pages)->registration_);
}

RegisteredPages::~RegisteredPages() {
    registration_.reset();
    munmap(address_, bytes_);
}

bool RegisteredPages::describe(PackedRegion *region) const {
    const std::vector<unsigned char> &key = registration_->key();
    if (key.size() > kMaxKeyBytes) {
        return false;
    }
    region->address = reinterpret_cast<uintptr_t>(address_);
    region->key_bytes = key.size();
    memcpy(region->key, key.data(), key.size());
    return true;
}

// ---------------------------------------------------------------- the log

ucs_status_t AttachedRegions::create(ucp_context_h context,
                                     std::unique_ptr<AttachedRegions> *regions) {
    std::unique_ptr<AttachedRegions> made(new (std::nothrow) AttachedRegions(context));
    if (made == nullptr) {
        return UCS_ERR_NO_MEMORY;
    }
    ucs_status_t status =
        RegisteredPages::create(context, sizeof(RegionIndex), &made->index_pages_);
    if (status == UCS_OK) {
        new (made->index_pages_->address()) RegionIndex;
        status = made->index_pages_->describe(&made->index_region_) ? made->begin_log(0)
                                                                    : UCS_ERR_EXCEEDS_LIMIT;
    }
    if (status == UCS_OK) {
        *regions = std::move(made);
    }
    return status;
}

ucs_status_t AttachedRegions::attach(void *address, size_t length) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Registration> registration;
    if (length > 0) {
        const ucs_status_t status = Registration::create(context_, address, length, &registration);
        if (status != UCS_OK) {
            return status;
        }
    }
    const auto region = regions_.emplace(reinterpret_cast<uintptr_t>(address),
                                         Region{++last_id_, length, std::move(registration)});
    const ucs_status_t status = length > 0 ? tell(*region, true) : UCS_OK;
    if (status != UCS_OK) {
        regions_.erase(region);
    }
    return status;
}

ucs_status_t AttachedRegions::detach(const void *address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto region = regions_.find(reinterpret_cast<uintptr_t>(address));
    if (region == regions_.end()) {
        return UCS_ERR_NO_ELEM;
    }
    auto gone = regions_.extract(region);  // a new log begins with regions_
    return gone.mapped().length > 0 ? tell({gone.key(), std::move(gone.mapped())}, false) : UCS_OK;
}

/** Logs a region that was attached and is in regions_, or that was detached and is not. */
ucs_status_t AttachedRegions::tell(const Regions::value_type &region, bool is_attached) {
    const size_t size = record_size(is_attached ? region.second.registration->key().size() : 0);
    if (header_.bytes + size > log_size(header_.log)) {
        return begin_log(size);
    }
    append(region, is_attached, &header_);
    publish(header_);
    return UCS_OK;
}

/** Begins a log with all attached regions, which fill at most half of it. `more`: bytes for a
 * further record. */
ucs_status_t AttachedRegions::begin_log(size_t more) {
    size_t needed = more;
    for (const auto &region : regions_) {
        needed +=
            region.second.length > 0 ? record_size(region.second.registration->key().size()) : 0;
    }
    LogHeader header = header_;
    header.epoch++;
    header.log ^= 1;
    header.bytes = 0;
    while (header.log < kLogs && needed > log_size(header.log) / 2) {
        header.log += 2;
    }
    const ucs_status_t status = header.log < kLogs ? prepare_log(header.log) : UCS_ERR_NO_MEMORY;
    if (status != UCS_OK) {
        return status;
    }
    // A reader that copies records of this log while they are overwritten then sees the new epoch.
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (const auto &region : regions_) {
        if (region.second.length > 0) {
            append(region, true, &header);
        }
    }
    header_ = header;
    publish(header_);
    return UCS_OK;
}

ucs_status_t AttachedRegions::prepare_log(uint64_t log) {
    if (log_pages_[log] != nullptr) {
        return UCS_OK;
    }
    std::unique_ptr<RegisteredPages> pages;
    const ucs_status_t status = RegisteredPages::create(context_, log_size(log), &pages);
    if (status != UCS_OK) {
        return status;
    }
    if (!pages->describe(&shared_index().logs[log])) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    log_pages_[log] = std::move(pages);
    return UCS_OK;
}

void AttachedRegions::append(const Regions::value_type &region, bool is_attached,
                             LogHeader *header) {
    LogRecord record = {region.second.id, region.first, region.second.length, 0,
                        is_attached ? 1U : 0U};
    unsigned char *const place = log_pages_[header->log]->address() + header->bytes;
    if (is_attached) {
        const std::vector<unsigned char> &key = region.second.registration->key();
        record.key_bytes = static_cast<uint32_t>(key.size());
        memcpy(place + sizeof(record), key.data(), key.size());
    }
    memcpy(place, &record, sizeof(record));
    header->bytes += record_size(record.key_bytes);
}

/** Writes the header for readers. The records that it counts must be in their log. */
void AttachedRegions::publish(const LogHeader &header) {
    LogHeader &published = shared_index().header;
    const uint64_t sequence = published.sequence;
    __atomic_store_n(&published.sequence, sequence + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&published.epoch, header.epoch, __ATOMIC_RELAXED);
    __atomic_store_n(&published.log, header.log, __ATOMIC_RELAXED);
    __atomic_store_n(&published.bytes, header.bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&published.sequence, sequence + 2, __ATOMIC_RELEASE);
}

}  // namespace gpushm::openmpi
