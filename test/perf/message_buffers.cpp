// SPDX-License-Identifier: BSD-3-Clause
#include "message_buffers.hpp"

#include "figures.hpp"

#include <stdexcept>

namespace gpushm::perf {
namespace {

/** Cuts `suffix` off, if it is there. */
bool cut(std::string *text, const std::string &suffix) {
    if (text->size() < suffix.size() ||
        text->compare(text->size() - suffix.size(), suffix.size(), suffix) != 0) {
        return false;
    }
    text->resize(text->size() - suffix.size());
    return true;
}

}  // namespace

MemoryType parse_memory_type(const std::string &text) {
    std::string rest = text;
    MemoryType type;
    type.renewed = cut(&rest, "+new");
    type.rewritten = !type.renewed && cut(&rest, "+written");
    type.stays = cut(&rest, "-stays");
    if (cut(&rest, "@cpu")) {
        type.place = MemoryType::Place::cpu;
    } else if (cut(&rest, "@gpu")) {
        type.place = MemoryType::Place::gpu;
    }
    type.kind = parse_memory_kind(rest);
    if (type.place != MemoryType::Place::anywhere && type.kind != MemoryKind::managed) {
        throw std::runtime_error(text + ": only managed memory has a changing place");
    }
    if (type.stays && (type.place == MemoryType::Place::anywhere || type.has_new_contents())) {
        throw std::runtime_error(text + ": what stays has a place, and is not new");
    }
    return type;
}

MessageBuffers::MessageBuffers(const Driver *driver, MemoryType type, size_t pool)
    : driver_(driver), type_(type) {
    if (!type.has_allocation_per_slot()) {
        memories_.push_back(std::make_unique<Memory>(driver, type.kind, pool));
    }
}

void MessageBuffers::prepare(size_t size, unsigned slots) {
    size_ = size;
    slots_ = slots;
    stride_ = stride_of(size);
    has_content_ = false;
    is_placed_ = false;
    if (type_.separate) {
        allocate_slots();
    }
}

void MessageBuffers::prepare_source(uint64_t seed) {
    if (type_.renewed) {
        allocate_slots();
    }
    for (unsigned slot = 0; slot < slots_ && !has_content_; ++slot) {
        memory(slot).fill(offset(slot), size_, seed + slot);
    }
    has_content_ = !type_.has_new_contents();
    place();
}

void MessageBuffers::prepare_destination() {
    if (type_.renewed) {
        allocate_slots();
    }
    for (unsigned slot = 0; slot < slots_ && !has_content_; ++slot) {
        memory(slot).clear(offset(slot), size_);
    }
    has_content_ = !type_.renewed;
    place();
}

void MessageBuffers::check(uint64_t seed) {
    is_placed_ = false;  // this CPU looks at it
    for (unsigned slot = 0; slot < slots_; ++slot) {
        memory(slot).check(offset(slot), size_, seed + slot);
    }
}

char *MessageBuffers::address(unsigned message) const {
    const unsigned slot = message % slots_;
    return memory(slot).address() + offset(slot);
}

void MessageBuffers::allocate_slots() {
    memories_.clear();
    for (unsigned slot = 0; slot < slots_; ++slot) {
        memories_.push_back(std::make_unique<Memory>(driver_, type_.kind, size_));
    }
}

void MessageBuffers::place() {
    if (type_.stays && is_placed_) {
        return;
    }
    is_placed_ = true;
    for (unsigned slot = 0; slot < slots_; ++slot) {
        if (type_.place == MemoryType::Place::cpu) {
            memory(slot).place_on_cpu(offset(slot), size_);
        } else if (type_.place == MemoryType::Place::gpu) {
            memory(slot).place_on_gpu(offset(slot), size_);
        }
    }
}

}  // namespace gpushm::perf
