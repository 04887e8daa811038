// SPDX-License-Identifier: BSD-3-Clause
// The buffers of one side for one direction: the slots of a window, in memory of one type.
#pragma once

#include "memory.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::perf {

/** What the command line calls KIND[@cpu|@gpu[-stays]][+new|+written]. */
struct MemoryType {
    enum class Place { anywhere, cpu, gpu };

    MemoryKind kind = MemoryKind::host;
    Place place = Place::anywhere;  // where managed pages are before each message
    bool stays = false;             // and before the first message only
    bool renewed = false;           // each message has a buffer that was just allocated
    bool rewritten = false;         // a source is written anew before each message
    bool separate = false;          // each slot is an allocation of its own

    /** Whether each message of such a source differs from the one before. */
    bool has_new_contents() const { return renewed || rewritten; }
    bool has_allocation_per_slot() const { return renewed || separate; }
    /** Whether something is to be done before each message. */
    bool needs_preparation() const {
        return has_new_contents() || (place != Place::anywhere && !stays);
    }
};

/** Throws std::runtime_error on what is none. */
MemoryType parse_memory_type(const std::string &text);

class MessageBuffers {
public:
    /** `pool`: pool_bytes of all sizes. `driver` may be null for host memory. */
    MessageBuffers(const Driver *driver, MemoryType type, size_t pool);

    const MemoryType &type() const { return type_; }

    /** From now on `slots` messages of `size` bytes, which differ from what was before. A renewed
     * buffer is what was just allocated. */
    void prepare(size_t size, unsigned slots);

    /** Before each message or window; `seed` must then be the one of all calls until `prepare`,
     * unless the contents are new. */
    void prepare_source(uint64_t seed);
    void prepare_destination();

    /** Throws std::runtime_error unless every slot holds what a source of `seed` holds. */
    void check(uint64_t seed);

    /** Slots are taken in turn. */
    char *address(unsigned message) const;

private:
    void allocate_slots();
    void place();
    Memory &memory(unsigned slot) const {
        return *memories_[type_.has_allocation_per_slot() ? slot : 0];
    }
    size_t offset(unsigned slot) const {
        return type_.has_allocation_per_slot() ? 0 : slot * stride_;
    }

    const Driver *driver_;
    MemoryType type_;
    std::vector<std::unique_ptr<Memory>> memories_;  // the pool, or one a slot
    size_t size_ = 0;
    size_t stride_ = 0;
    unsigned slots_ = 0;
    bool has_content_ = false;
    bool is_placed_ = false;
};

}  // namespace gpushm::perf
