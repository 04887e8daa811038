// SPDX-License-Identifier: BSD-3-Clause
// The memory that another process has attached to a dynamic window, read from its log.
#pragma once

#include "openmpi/binding/ucp_functions.hpp"
#include "openmpi/one_sided/region_log.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpushm::openmpi {

/** A remote key of UCX that is unpacked for one endpoint. */
class RemoteKey {
public:
    static ucs_status_t unpack(ucp_ep_h endpoint, const void *packed,
                               std::unique_ptr<RemoteKey> *key);
    ~RemoteKey() { ucp().rkey_destroy(key_); }
    RemoteKey(const RemoteKey &) = delete;
    RemoteKey &operator=(const RemoteKey &) = delete;

    ucp_rkey_h get() const { return key_; }

private:
    explicit RemoteKey(ucp_rkey_h key) : key_(key) {}

    ucp_rkey_h key_;
};

/** For one endpoint. A key is valid until its memory is detached or this object ends. Thread safe.
 */
class RemoteRegions {
public:
    /** `index`: the place of the process's RegionIndex. */
    RemoteRegions(ucp_ep_h endpoint, const PackedRegion &index)
        : endpoint_(endpoint), index_(index) {}

    /** Reads new records. Blocks, and lets Open MPI make progress meanwhile. */
    ucs_status_t refresh();

    /** The key for `address`, and the number of bytes from there on that it covers.
     * UCS_ERR_INVALID_ADDR: no memory is attached there. */
    ucs_status_t find(uint64_t address, ucp_rkey_h *key, size_t *bytes);

private:
    struct Region {
        uint64_t id;
        uint64_t length;
        std::vector<unsigned char> packed;
        std::unique_ptr<RemoteKey> key;  // null: not unpacked yet
    };
    using Regions = std::multimap<uint64_t, Region>;  // by address

    ucs_status_t get(void *buffer, size_t bytes, uint64_t address, const RemoteKey &key) const;
    ucs_status_t get_header(LogHeader *header) const;
    ucs_status_t get_steady_header(LogHeader *header) const;
    ucs_status_t get_records(const LogHeader &header, uint64_t begin,
                             std::vector<unsigned char> *records);
    ucs_status_t open_log(uint64_t number);
    ucs_status_t catch_up();
    void begin_epoch();
    void apply(const std::vector<unsigned char> &records);
    void add(const LogRecord &record, const unsigned char *key);
    void remove(const LogRecord &record);
    Regions::iterator containing(uint64_t address);

    struct Log {
        uint64_t address = 0;
        std::unique_ptr<RemoteKey> key;
    };

    std::mutex mutex_;
    ucp_ep_h endpoint_;
    PackedRegion index_;
    std::unique_ptr<RemoteKey> index_key_;
    Log logs_[kLogs];
    LogHeader header_;  // regions_ has the records up to this header
    Regions regions_;
    std::unordered_map<uint64_t, Region> earlier_;  // regions of the last epoch, by id
};

}  // namespace gpushm::openmpi
