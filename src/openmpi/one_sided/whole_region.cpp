// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/whole_region.hpp"

#include "core/base/process.hpp"
#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/binding/ucp_functions.hpp"
#include "openmpi/one_sided/whole_keys.hpp"
#include "openmpi/one_sided/window_libraries.hpp"

#include <cstring>
#include <utility>

namespace gpushm::openmpi {
namespace {

thread_local WholeRegion *newest = nullptr;

}  // namespace

thread_local unsigned WholeRegion::Watch::maps_ = 0;

WholeRegion::WholeRegion(std::unique_ptr<AttachedRegions> regions) : regions_(std::move(regions)) {
    index_.id = Cookie::random().low | 1;  // unlike that of any other process; not 0
    index_.region = regions_->index();
    key_ = {WholeKey::kMark, index_.id};
}

ucs_status_t WholeRegion::create(ucp_context_h context, WholeRegion **region) {
    std::unique_ptr<AttachedRegions> regions;
    const ucs_status_t status = AttachedRegions::create(context, &regions);
    if (status == UCS_OK) {
        *region = newest = new WholeRegion(std::move(regions));
    }
    return status;
}

WholeRegion::~WholeRegion() {
    remove_indexes(peers_);
    if (on_end_) {
        on_end_();
    }
}

WholeRegion *WholeRegion::take_new() {
    return std::exchange(newest, nullptr);
}

void WholeRegion::know_indexes(const std::vector<RemoteIndex> &all) {
    peers_.reserve(all.size());
    for (const RemoteIndex &index : all) {
        peers_.push_back(index.id);
    }
    add_indexes(all);
}

// ---------------------------------------------------------------- in place of UCP's functions

namespace {

bool is_everything(const ucp_mem_map_params_t &params) {
    constexpr uint64_t kFields = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    return (params.field_mask & kFields) == kFields && params.address == WholeRegion::base() &&
           params.length == static_cast<size_t>(WholeRegion::kLength);
}

ucs_status_t mem_map(ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *memory) {
    WholeRegion::Watch::note();
    if (!is_everything(*params)) {
        return replaced_by<mem_map>(context, params, memory);
    }
    WholeRegion *region = nullptr;
    const ucs_status_t status = WholeRegion::create(context, &region);
    if (status == UCS_OK) {
        *memory = to_handle<ucp_mem_h>(region);
    }
    return status;
}

ucs_status_t mem_query(const ucp_mem_h memory, ucp_mem_attr_t *attributes) {
    if (!is_ours(memory)) {
        return replaced_by<mem_query>(memory, attributes);
    }
    if ((attributes->field_mask & UCP_MEM_ATTR_FIELD_ADDRESS) != 0) {
        attributes->address = WholeRegion::base();
    }
    if ((attributes->field_mask & UCP_MEM_ATTR_FIELD_LENGTH) != 0) {
        attributes->length = static_cast<size_t>(WholeRegion::kLength);
    }
    if ((attributes->field_mask & UCP_MEM_ATTR_FIELD_MEM_TYPE) != 0) {
        attributes->mem_type = UCS_MEMORY_TYPE_UNKNOWN;
    }
    return UCS_OK;
}

ucs_status_t mem_unmap(ucp_context_h context, ucp_mem_h memory) {
    if (!is_ours(memory)) {
        return replaced_by<mem_unmap>(context, memory);
    }
    delete from_handle<WholeRegion>(memory);
    return UCS_OK;
}

ucs_status_t rkey_pack(ucp_context_h context, ucp_mem_h memory, void **buffer, size_t *size) {
    if (!is_ours(memory)) {
        return replaced_by<rkey_pack>(context, memory, buffer, size);
    }
    *buffer = const_cast<WholeKey *>(&from_handle<WholeRegion>(memory)->key());
    *size = sizeof(WholeKey);
    return UCS_OK;
}

void rkey_buffer_release(void *buffer) {
    uint64_t mark = 0;
    memcpy(&mark, buffer, sizeof(mark));
    if (mark != WholeKey::kMark) {  // else it is in the region
        replaced_by<rkey_buffer_release>(buffer);
    }
}

}  // namespace

bool redirect_window_memory(CallRedirection *redirection) {
    std::vector<ReplacedCall> calls = whole_key_calls();
    calls.insert(
        calls.end(),
        {replaced_call<mem_map>("ucp_mem_map"), replaced_call<mem_query>("ucp_mem_query"),
         replaced_call<mem_unmap>("ucp_mem_unmap"), replaced_call<rkey_pack>("ucp_rkey_pack"),
         replaced_call<rkey_buffer_release>("ucp_rkey_buffer_release")});
    return redirect_ucp_calls(calls, redirection, libraries_of_windows());
}

}  // namespace gpushm::openmpi
