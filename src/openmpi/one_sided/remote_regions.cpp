// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/remote_regions.hpp"

#include "openmpi/binding/open_mpi_progress.hpp"

#include <cstring>
#include <new>

namespace gpushm::openmpi {
namespace {

bool are_equal(const LogHeader &a, const LogHeader &b) {
    return a.sequence == b.sequence && a.epoch == b.epoch && a.log == b.log && a.bytes == b.bytes;
}

}  // namespace

ucs_status_t RemoteKey::unpack(ucp_ep_h endpoint, const void *packed,
                               std::unique_ptr<RemoteKey> *key) {
    ucp_rkey_h unpacked = nullptr;
    const ucs_status_t status = ucp().ep_rkey_unpack(endpoint, packed, &unpacked);
    if (status != UCS_OK) {
        return status;
    }
    key->reset(new (std::nothrow) RemoteKey(unpacked));
    if (*key == nullptr) {
        ucp().rkey_destroy(unpacked);
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

// ---------------------------------------------------------------- reading the log

ucs_status_t RemoteRegions::get(void *buffer, size_t bytes, uint64_t address,
                                const RemoteKey &key) const {
    const ucp_request_param_t param = {};
    void *const request = ucp().get_nbx(endpoint_, buffer, bytes, address, key.get(), &param);
    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    ucs_status_t status = UCS_INPROGRESS;
    while ((status = ucp().request_check_status(request)) == UCS_INPROGRESS) {
        make_progress();
    }
    ucp().request_free(request);
    return status;
}

ucs_status_t RemoteRegions::get_header(LogHeader *header) const {
    return get(header, sizeof(*header), index_.address + offsetof(RegionIndex, header),
               *index_key_);
}

/** A consistent header (region_log.hpp). */
ucs_status_t RemoteRegions::get_steady_header(LogHeader *header) const {
    LogHeader before;
    ucs_status_t status = get_header(header);
    do {
        before = *header;
        status = status == UCS_OK ? get_header(header) : status;
    } while (status == UCS_OK && (header->sequence % 2 != 0 || !are_equal(before, *header)));
    const bool is_sound = header->log < kLogs && header->bytes <= log_size(header->log);
    return status == UCS_OK && !is_sound ? UCS_ERR_INVALID_PARAM : status;
}

ucs_status_t RemoteRegions::open_log(uint64_t number) {
    Log &log = logs_[number];
    if (log.key != nullptr) {
        return UCS_OK;
    }
    PackedRegion region;
    const ucs_status_t status =
        get(&region, sizeof(region),
            index_.address + offsetof(RegionIndex, logs) + number * sizeof(region), *index_key_);
    log.address = region.address;
    return status == UCS_OK ? RemoteKey::unpack(endpoint_, region.key, &log.key) : status;
}

/** The records of the log from `begin` on. Valid if the epoch is unchanged afterwards. */
ucs_status_t RemoteRegions::get_records(const LogHeader &header, uint64_t begin,
                                        std::vector<unsigned char> *records) {
    const ucs_status_t status = open_log(header.log);
    if (status != UCS_OK || header.bytes <= begin) {
        return status;
    }
    const Log &log = logs_[header.log];
    records->resize(header.bytes - begin);
    return get(records->data(), records->size(), log.address + begin, *log.key);
}

ucs_status_t RemoteRegions::refresh() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (index_key_ == nullptr) {
        const ucs_status_t status = RemoteKey::unpack(endpoint_, index_.key, &index_key_);
        if (status != UCS_OK) {
            return status;
        }
    }
    LogHeader now;
    const ucs_status_t status = get_header(&now);
    return status != UCS_OK || are_equal(now, header_) ? status : catch_up();
}

ucs_status_t RemoteRegions::catch_up() {
    LogHeader now;
    ucs_status_t status = get_steady_header(&now);
    while (status == UCS_OK) {
        const bool is_same_epoch = now.epoch == header_.epoch;
        std::vector<unsigned char> records;
        LogHeader after;
        status = get_records(now, is_same_epoch ? header_.bytes : 0, &records);
        status = status == UCS_OK ? get_steady_header(&after) : status;
        if (status == UCS_OK && after.epoch == now.epoch) {
            if (!is_same_epoch) {
                begin_epoch();
            }
            apply(records);
            earlier_.clear();
            header_ = now;
            return UCS_OK;
        }
        now = after;
    }
    return status;
}

// ---------------------------------------------------------------- attached regions

/** Keeps the keys of memory that is still attached, because operations may be using them. */
void RemoteRegions::begin_epoch() {
    for (auto &region : regions_) {
        const uint64_t id = region.second.id;
        earlier_.emplace(id, std::move(region.second));
    }
    regions_.clear();
}

void RemoteRegions::apply(const std::vector<unsigned char> &records) {
    size_t position = 0;
    while (position + sizeof(LogRecord) <= records.size()) {
        LogRecord record;
        memcpy(&record, records.data() + position, sizeof(record));
        if (record_size(record.key_bytes) > records.size() - position) {
            return;
        }
        if (record.is_attached != 0) {
            add(record, records.data() + position + sizeof(record));
        } else {
            remove(record);
        }
        position += record_size(record.key_bytes);
    }
}

void RemoteRegions::add(const LogRecord &record, const unsigned char *key) {
    const auto known = earlier_.find(record.id);
    if (known != earlier_.end()) {
        regions_.emplace(record.address, std::move(known->second));
        earlier_.erase(known);
        return;
    }
    Region region = {record.id, record.length, {key, key + record.key_bytes}, nullptr};
    regions_.emplace(record.address, std::move(region));
}

void RemoteRegions::remove(const LogRecord &record) {
    const auto range = regions_.equal_range(record.address);
    for (auto region = range.first; region != range.second; ++region) {
        if (region->second.id == record.id) {
            regions_.erase(region);
            return;
        }
    }
}

/** The region that contains `address`. Usually the nearest one that begins before it, because
 * attached regions rarely overlap. */
RemoteRegions::Regions::iterator RemoteRegions::containing(uint64_t address) {
    auto region = regions_.upper_bound(address);
    while (region != regions_.begin()) {
        --region;
        if (address - region->first < region->second.length) {
            return region;
        }
    }
    return regions_.end();
}

ucs_status_t RemoteRegions::find(uint64_t address, ucp_rkey_h *key, size_t *bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = containing(address);
    if (found == regions_.end()) {
        return UCS_ERR_INVALID_ADDR;
    }
    Region &region = found->second;
    const ucs_status_t status =
        region.key != nullptr ? UCS_OK
                              : RemoteKey::unpack(endpoint_, region.packed.data(), &region.key);
    if (status == UCS_OK) {
        *key = region.key->get();
        *bytes = region.length - (address - found->first);
    }
    return status;
}

}  // namespace gpushm::openmpi
