// SPDX-License-Identifier: BSD-3-Clause
// Filling and checking happens in ordinary memory; what the CPU must not touch is copied by the
// driver.
#include "guarded_buffer.hpp"

#include "pattern.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr uint64_t kGuardSeed = 0x6775617264;  // any constant

// Ordinary memory to prepare and check contents in; grows to the largest message.
std::vector<unsigned char> &scratch(size_t size) {
    static std::vector<unsigned char> memory;
    if (memory.size() < size) {
        memory.resize(size);
    }
    return memory;
}

std::string describe(const char *where, const Mismatch &mismatch) {
    char text[160];
    std::snprintf(text, sizeof(text), "%s, byte %zu: expected 0x%02x, got 0x%02x", where,
                  mismatch.position, mismatch.expected, mismatch.got);
    return text;
}

}  // namespace

GuardedBuffer::GuardedBuffer(CudaDriver *driver, MemoryKind kind, size_t max_capacity)
    : driver_(driver), kind_(kind), mapped_bytes_(max_capacity + kMaxOffset + 2 * kGuardBytes) {
    if (kind == MemoryKind::host) {
        void *memory = nullptr;
        if (posix_memalign(&memory, 4096, mapped_bytes_) != 0) {
            throw std::runtime_error("no memory for a buffer of " + std::to_string(mapped_bytes_) +
                                     " B");
        }
        base_ = static_cast<unsigned char *>(memory);
    } else if (driver != nullptr) {
        base_ = static_cast<unsigned char *>(driver->allocate(kind, mapped_bytes_));
    } else {
        throw std::runtime_error(std::string(to_string(kind)) + " memory needs a CUDA driver");
    }
}

GuardedBuffer::~GuardedBuffer() {
    if (kind_ == MemoryKind::host) {
        std::free(base_);
        return;
    }
    try {
        driver_->release(kind_, base_);
    } catch (const std::runtime_error &error) {
        std::fprintf(stderr, "pairs: %s\n", error.what());
    }
}

void *GuardedBuffer::address(const Message &message) const {
    return base_ + kGuardBytes + message.offset;
}

void GuardedBuffer::prepare_source(const Message &message) {
    std::vector<unsigned char> &content = scratch(message.size);
    fill_pattern(content.data(), message.size, message.seed);
    write(base_ + kGuardBytes + message.offset, content.data(), message.size, message.seed);
}

void GuardedBuffer::prepare_destination(const Message &message) {
    const size_t total = message.capacity + 2 * kGuardBytes;
    std::vector<unsigned char> &content = scratch(total);
    fill_pattern(content.data(), kGuardBytes, kGuardSeed);
    fill_poison(content.data() + kGuardBytes, message.capacity, message.seed);
    fill_pattern(content.data() + kGuardBytes + message.capacity, kGuardBytes, kGuardSeed);
    write(base_ + message.offset, content.data(), total, message.seed);
}

std::string GuardedBuffer::check_destination(const Message &message) const {
    const size_t total = message.capacity + 2 * kGuardBytes;
    std::vector<unsigned char> &content = scratch(total);
    read(content.data(), base_ + message.offset, total, message.seed);

    const unsigned char *data = content.data() + kGuardBytes;
    if (auto wrong = find_pattern_mismatch(data, message.size, message.seed)) {
        return describe("message", *wrong);
    }
    if (auto wrong = find_poison_mismatch(data + message.size, message.capacity - message.size,
                                          message.seed, message.size)) {
        return describe("written beyond the end of the message", *wrong);
    }
    if (auto wrong = find_pattern_mismatch(data + message.capacity, kGuardBytes, kGuardSeed)) {
        return describe("written behind the buffer", *wrong);
    }
    if (auto wrong = find_pattern_mismatch(content.data(), kGuardBytes, kGuardSeed)) {
        return describe("written in front of the buffer (4096 B)", *wrong);
    }
    return "";
}

// Managed memory is reached by the CPU for one half of the messages and by the driver for the other
// half, so that its pages are found on either side.
void GuardedBuffer::write(unsigned char *to, const unsigned char *from, size_t size,
                          uint64_t seed) {
    if (kind_ == MemoryKind::device || (kind_ == MemoryKind::managed && seed % 2 != 0)) {
        driver_->write(to, from, size);
    } else if (size != 0) {
        std::memcpy(to, from, size);
    }
}

void GuardedBuffer::read(unsigned char *to, const unsigned char *from, size_t size,
                         uint64_t seed) const {
    if (kind_ == MemoryKind::device || (kind_ == MemoryKind::managed && seed % 4 >= 2)) {
        driver_->read(to, from, size);
    } else {
        std::memcpy(to, from, size);
    }
}

}  // namespace gpushm::mpi_test
