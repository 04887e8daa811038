// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/shared_memory_domain.hpp"

#include "core/base/immovable.hpp"
#include "core/copy/row_views.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/registration_table.hpp"
#include "core/transport/message_offer.hpp"
#include "uct_gpushm/cost_model.hpp"
#include "uct_gpushm/memory_types.hpp"

#include <cstring>
#include <mutex>
#include <optional>

namespace gpushm::uct {
namespace {

/** Memory that UCP has registered. It has no id before its key is packed: until then no peer can
 * name it, and UCP packs no key of most buffers that it sends. So the table, which all peers read,
 * need not know of it (doc/decisions/uct_gpushm-host-messages.md). */
class Registration : Immovable {
public:
    Registration(const void *address, size_t length) : address_(address), length_(length) {}
    ~Registration() {
        if (id_ != 0) {
            RegistrationTable::instance().remove(id_);
        }
    }
    static Registration &of(uct_mem_h memh) { return *static_cast<Registration *>(memh); }

    const void *address() const { return address_; }
    size_t length() const { return length_; }
    /** The same for all threads, and for all keys. */
    uint64_t id() {
        const std::lock_guard<std::mutex> lock(mutex_);
        id_ = id_ != 0 ? id_ : RegistrationTable::instance().add(address_, length_);
        return id_;
    }

private:
    const void *const address_;
    const size_t length_;
    std::mutex mutex_;
    uint64_t id_ = 0;  // 0: none yet
};

/** A remote key as UCP sends it to the peer. */
struct PackedKey {
    uint64_t registration;      // RegistrationTable id in the process that packed the key
    BufferKey buffer;           // the GPU allocation in which the registration, or `rows`, begins
    uint64_t speculative_copy;  // RemoteMemory::speculative_copy
    StridedRows rows;     // where the data of `block` really are; length 0: in the registration
    uint64_t block;       // address of the block that stands for `rows` (RowViews)
    OfferUse offer;       // RemoteMemory::offer
    uint64_t of_program;  // 1: RemoteMemory::of_program
};

/** Writes the rows that a block stands for into its key. False: it stands for none. */
bool name_rows(const void *address, size_t length, PackedKey *key) {
    const void *block = nullptr;
    const std::optional<StridedRows> rows =
        RowViews::instance().name_source(address, length, &block);
    if (rows) {
        key->rows = *rows;
        key->block = reinterpret_cast<uint64_t>(block);
    }
    return rows.has_value();
}

/** Writes what permits the receiver to copy an offered message. The rows of one that cannot be
 * offered are not named either, because their sender is not to wait for the receiver. */
void name_offer(const void *address, size_t length, const MessageSender *sender, PackedKey *key) {
    const std::optional<OfferUse> offer =
        MessageOffer::open(address, length, sender != nullptr ? &sender->offer_places() : nullptr);
    if (offer && !offer->exists()) {
        (void)RowViews::instance().pack(address, length);
    } else if (offer) {
        key->offer = *offer;
    }
}

class SharedMemoryDomain : public Domain {
public:
    InterfaceKind interface_kind() const override { return InterfaceKind::shared_memory; }
    const char *device_name() const override { return "gpushm"; }

    void query(abi::MdAttributes &attributes) const override {
        attributes.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY |
                           UCT_MD_FLAG_INVALIDATE;
        attributes.reg_mem_types = kAllMemoryTypes;
        // Never a GPU type: UCP would take our interface for one that copies inside the process.
        attributes.access_mem_types = memory_type_bit(UCS_MEMORY_TYPE_HOST);
        attributes.reg_overhead = registration_overhead();
    }
    size_t rkey_packed_size() const override { return sizeof(PackedKey); }

    /** Notes the range only. Each operation looks the allocation up, because UCP's registration
     * cache keeps handles of memory that was freed. */
    ucs_status_t mem_reg(void *address, size_t length, uct_mem_h &memh) override {
        memh = new Registration(address, length);
        return UCS_OK;
    }
    /** Tells peers in any case, not only if UCP asks to invalidate: without a registration cache
     * UCP also deregisters memory of requests that it has given up. */
    ucs_status_t mem_dereg(uct_mem_h memh, bool) override {
        delete &Registration::of(memh);
        return UCS_OK;
    }
    ucs_status_t mkey_pack(uct_mem_h memh, const void *announced, size_t announced_length,
                           void *rkey_buffer) override {
        // The allocation may be newer than the handle.
        Registration &registration = Registration::of(memh);
        const void *const address = registration.address();
        const size_t length = registration.length();
        PackedKey key = {};
        key.registration = registration.id();
        MessageSender *const sender = MessageSender::packing();
        name_offer(address, length, sender, &key);
        const bool in_rows = name_rows(address, length, &key);
        key.offer = in_rows ? key.offer : OfferUse();
        const void *source = in_rows ? reinterpret_cast<const void *>(key.rows.address) : address;
        const MemoryInfo info = query_memory(source);
        if (info.needs_gpu() && abi::packs_for_program()) {
            be_synchronous(info, source);
        }
        const bool by_gpu = announced != nullptr ? gpu_copies(info, announced, announced_length)
                                                 : gpu_copies(info, address, length);
        key.buffer = make_buffer_key(info, by_gpu);
        key.of_program = abi::packs_for_program() ? 1 : 0;
        if (sender != nullptr && announced != nullptr && !in_rows) {
            key.speculative_copy =
                sender->plan_speculative_copy(announced, announced_length, by_gpu);
        }
        memcpy(rkey_buffer, &key, sizeof(key));
        return UCS_OK;
    }
};

}  // namespace

std::unique_ptr<Domain> make_shared_memory_domain() {
    return std::make_unique<SharedMemoryDomain>();
}

ucs_status_t unpack_rkey(const void *rkey_buffer, uct_rkey_t *rkey, void **handle) {
    auto *key = new PackedKey;
    memcpy(key, rkey_buffer, sizeof(*key));
    *rkey = reinterpret_cast<uct_rkey_t>(key);
    *handle = key;
    return UCS_OK;
}

ucs_status_t release_rkey(uct_rkey_t, void *handle) {
    delete static_cast<PackedKey *>(handle);
    return UCS_OK;
}

RemoteMemory remote_memory(uct_rkey_t rkey, uint64_t address) {
    const auto *key = reinterpret_cast<const PackedKey *>(rkey);
    const bool in_rows = key->rows.length != 0;
    if (in_rows && key->block != address) {
        return {address, key->registration};  // `buffer` describes the rows
    }
    return {address,   key->registration, key->buffer,         key->speculative_copy,
            key->rows, key->offer,        key->of_program != 0};
}

}  // namespace gpushm::uct
