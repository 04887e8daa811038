// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/whole_keys.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/one_sided/remote_regions.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpushm::openmpi {
namespace {

using RegionsPtr = std::unique_ptr<RemoteRegions>;
using IdAndEndpoint = std::pair<uint64_t, ucp_ep_h>;

/** osc/ucx unpacks and destroys a key for each operation; in Open MPI 4.1 also while another thread
 * uses the previous one. So the handle is the address of a RemoteRegions, which lives here as long
 * as the window and its endpoint. */
struct State {
    std::mutex mutex;
    std::unordered_map<uint64_t, PackedRegion> indexes;  // by id
    std::map<IdAndEndpoint, RegionsPtr> regions;
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

/** Null: this process does not know the window. */
RemoteRegions *find_regions(uint64_t id, ucp_ep_h endpoint) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    const auto index = state().indexes.find(id);
    if (index == state().indexes.end()) {
        return nullptr;
    }
    RegionsPtr &regions = state().regions[{id, endpoint}];
    if (regions == nullptr) {
        regions = std::make_unique<RemoteRegions>(endpoint, index->second);
    }
    return regions.get();
}

/** Reads the target's log once for each operation. That is enough: a program accesses memory only
 * after it has learnt from the target that the memory is attached. */
ucs_status_t unpack_whole(ucp_ep_h endpoint, uint64_t id, ucp_rkey_h *key) {
    RemoteRegions *const regions = find_regions(id, endpoint);
    if (regions == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    *key = to_handle<ucp_rkey_h>(regions);
    return regions->refresh();
}

ucs_status_t ep_rkey_unpack(ucp_ep_h endpoint, const void *packed, ucp_rkey_h *key) {
    WholeKey whole;
    memcpy(&whole.mark, packed, sizeof(whole.mark));
    if (whole.mark != WholeKey::kMark) {
        return replaced_by<ep_rkey_unpack>(endpoint, packed, key);
    }
    memcpy(&whole, packed, sizeof(whole));
    return unpack_whole(endpoint, whole.id, key);
}

void rkey_destroy(ucp_rkey_h key) {
    if (!is_ours(key)) {
        replaced_by<rkey_destroy>(key);
    }
}

ucs_status_t rkey_ptr(ucp_rkey_h key, uint64_t address, void **local) {
    return is_ours(key) ? UCS_ERR_UNREACHABLE : replaced_by<rkey_ptr>(key, address, local);
}

/** Forgets the endpoint, because a later one may have its address. */
void ep_destroy(ucp_ep_h endpoint) {
    {
        const std::lock_guard<std::mutex> lock(state().mutex);
        auto &regions = state().regions;
        for (auto next = regions.begin(); next != regions.end();) {
            const auto known = next++;
            if (known->first.second == endpoint) {
                regions.erase(known);
            }
        }
    }
    replaced_by<ep_destroy>(endpoint);
}

// ---------------------------------------------------------------- operations

/** The key of the memory at `address`, and how many bytes from there it covers. */
ucs_status_t find_key(ucp_rkey_h whole, uint64_t address, ucp_rkey_h *key, size_t *bytes) {
    RemoteRegions &regions = *from_handle<RemoteRegions>(whole);
    ucs_status_t status = regions.find(address, key, bytes);
    if (status == UCS_ERR_INVALID_ADDR) {
        status = regions.refresh();
        status = status == UCS_OK ? regions.find(address, key, bytes) : status;
    }
    if (status == UCS_ERR_INVALID_ADDR) {
        GPUSHM_LOG(error,
                   "a one-sided operation accesses address 0x%lx of a dynamic window, where its "
                   "target has attached no memory: call MPI_Win_attach in the target before",
                   static_cast<unsigned long>(address));
    }
    return status;
}

ucs_status_t find_key(ucp_rkey_h whole, uint64_t address, size_t length, ucp_rkey_h *key) {
    size_t bytes = 0;
    const ucs_status_t status = find_key(whole, address, key, &bytes);
    if (status == UCS_OK && bytes < length) {
        GPUSHM_LOG(error,
                   "a one-sided operation accesses %zu bytes at address 0x%lx of a dynamic window, "
                   "where its target has attached %zu: attach them with one MPI_Win_attach",
                   length, static_cast<unsigned long>(address), bytes);
        return UCS_ERR_INVALID_ADDR;
    }
    return status;
}

/** Accesses remote memory that may be attached in several parts. `operate` gets a part of the
 * buffer, its length, the remote address and the key of that. */
template <typename Byte, typename Operate>
ucs_status_t for_each_part(Byte *buffer, size_t length, uint64_t address, ucp_rkey_h whole,
                           Operate operate) {
    if (!is_ours(whole)) {
        return operate(buffer, length, address, whole);
    }
    ucs_status_t result = UCS_OK;
    while (length > 0) {
        ucp_rkey_h key = nullptr;
        size_t bytes = 0;
        ucs_status_t status = find_key(whole, address, &key, &bytes);
        bytes = std::min(bytes, length);
        status = status == UCS_OK ? operate(buffer, bytes, address, key) : status;
        if (status != UCS_OK && status != UCS_INPROGRESS) {
            return status;
        }
        result = status == UCS_OK ? result : status;
        buffer += bytes;
        address += bytes;
        length -= bytes;
    }
    return result;
}

ucs_status_t put_nbi(ucp_ep_h endpoint, const void *buffer, size_t length, uint64_t address,
                     ucp_rkey_h key) {
    return for_each_part(
        static_cast<const char *>(buffer), length, address, key,
        [endpoint](const char *part, size_t bytes, uint64_t at, ucp_rkey_h its_key) {
            return replaced_by<put_nbi>(endpoint, part, bytes, at, its_key);
        });
}

ucs_status_t get_nbi(ucp_ep_h endpoint, void *buffer, size_t length, uint64_t address,
                     ucp_rkey_h key) {
    return for_each_part(static_cast<char *>(buffer), length, address, key,
                         [endpoint](char *part, size_t bytes, uint64_t at, ucp_rkey_h its_key) {
                             return replaced_by<get_nbi>(endpoint, part, bytes, at, its_key);
                         });
}

/** Runs `operate`, which accesses `length` bytes at `address`, with the key of the memory there in
 * place of `*key`. Returns what it returns, or the status of a failure. */
template <typename Operate>
auto with_key(ucp_rkey_h *key, uint64_t address, size_t length, Operate operate) {
    using Result = decltype(operate());
    const ucs_status_t status = is_ours(*key) ? find_key(*key, address, length, key) : UCS_OK;
    if constexpr (std::is_pointer_v<Result>) {
        return status == UCS_OK ? operate() : Result(UCS_STATUS_PTR(status));
    } else {
        return status == UCS_OK ? operate() : status;
    }
}

ucs_status_ptr_t put_nbx(ucp_ep_h endpoint, const void *buffer, size_t count, uint64_t address,
                         ucp_rkey_h key, const ucp_request_param_t *param) {
    return with_key(&key, address, count, [&] {
        return replaced_by<put_nbx>(endpoint, buffer, count, address, key, param);
    });
}

ucs_status_ptr_t get_nbx(ucp_ep_h endpoint, void *buffer, size_t count, uint64_t address,
                         ucp_rkey_h key, const ucp_request_param_t *param) {
    return with_key(&key, address, count, [&] {
        return replaced_by<get_nbx>(endpoint, buffer, count, address, key, param);
    });
}

ucs_status_t atomic_post(ucp_ep_h endpoint, ucp_atomic_post_op_t operation, uint64_t value,
                         size_t size, uint64_t address, ucp_rkey_h key) {
    return with_key(&key, address, size, [&] {
        return replaced_by<atomic_post>(endpoint, operation, value, size, address, key);
    });
}

ucs_status_ptr_t atomic_fetch_nb(ucp_ep_h endpoint, ucp_atomic_fetch_op_t operation, uint64_t value,
                                 void *result, size_t size, uint64_t address, ucp_rkey_h key,
                                 ucp_send_callback_t callback) {
    return with_key(&key, address, size, [&] {
        return replaced_by<atomic_fetch_nb>(endpoint, operation, value, result, size, address, key,
                                            callback);
    });
}

ucs_status_ptr_t atomic_op_nbx(ucp_ep_h endpoint, ucp_atomic_op_t operation, const void *buffer,
                               size_t count, uint64_t address, ucp_rkey_h key,
                               const ucp_request_param_t *param) {
    return with_key(&key, address, count, [&] {
        return replaced_by<atomic_op_nbx>(endpoint, operation, buffer, count, address, key, param);
    });
}

}  // namespace

void add_indexes(const std::vector<RemoteIndex> &indexes) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    for (const RemoteIndex &index : indexes) {
        if (index.id != 0) {
            state().indexes[index.id] = index.region;
        }
    }
}

void remove_indexes(const std::vector<uint64_t> &ids) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    for (const uint64_t id : ids) {
        state().indexes.erase(id);
        auto &regions = state().regions;
        for (auto next = regions.lower_bound({id, nullptr});
             next != regions.end() && next->first.first == id;) {
            next = regions.erase(next);
        }
    }
}

std::vector<ReplacedCall> whole_key_calls() {
    return {replaced_call<ep_rkey_unpack>("ucp_ep_rkey_unpack"),
            replaced_call<rkey_destroy>("ucp_rkey_destroy"),
            replaced_call<rkey_ptr>("ucp_rkey_ptr"),
            replaced_call<ep_destroy>("ucp_ep_destroy"),
            replaced_call<put_nbi>("ucp_put_nbi"),
            replaced_call<get_nbi>("ucp_get_nbi"),
            replaced_call<put_nbx>("ucp_put_nbx"),
            replaced_call<get_nbx>("ucp_get_nbx"),
            replaced_call<atomic_post>("ucp_atomic_post"),
            replaced_call<atomic_fetch_nb>("ucp_atomic_fetch_nb"),
            replaced_call<atomic_op_nbx>("ucp_atomic_op_nbx")};
}

}  // namespace gpushm::openmpi
