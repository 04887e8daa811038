// SPDX-License-Identifier: BSD-3-Clause
#include "operations_buffer.hpp"

#include "pattern.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace gpushm::mpi_test::operations {
namespace {

constexpr size_t kGuard = 512;  // bytes in front of and behind each buffer
constexpr size_t kPage = 4096;

// Sizes of allocations are powers of two, so that few of them are ever made.
size_t allocation_size(size_t size) {
    size_t allocated = kPage;
    while (allocated < size) {
        allocated *= 2;
    }
    return allocated;
}

}  // namespace

MemoryPool::~MemoryPool() {
    for (const auto &[key, blocks] : free_) {
        for (unsigned char *block : blocks) {
            if (key.first == MemoryKind::host) {
                std::free(block);
                continue;
            }
            try {
                driver_->release(key.first, block);
            } catch (const std::runtime_error &error) {
                std::fprintf(stderr, "operations: %s\n", error.what());
            }
        }
    }
}

unsigned char *MemoryPool::take(MemoryKind kind, size_t size) {
    const size_t allocated = allocation_size(size);
    std::vector<unsigned char *> &blocks = free_[{kind, allocated}];
    if (!blocks.empty()) {
        unsigned char *block = blocks.back();
        blocks.pop_back();
        return block;
    }
    if (kind != MemoryKind::host) {
        if (driver_ == nullptr) {
            throw std::runtime_error(std::string(to_string(kind)) + " memory needs a CUDA driver");
        }
        return static_cast<unsigned char *>(driver_->allocate(kind, allocated));
    }
    void *block = nullptr;
    if (posix_memalign(&block, kPage, allocated) != 0) {
        throw std::runtime_error("no memory for a buffer of " + std::to_string(allocated) + " B");
    }
    return static_cast<unsigned char *>(block);
}

void MemoryPool::put_back(MemoryKind kind, size_t size, unsigned char *memory) {
    free_[{kind, allocation_size(size)}].push_back(memory);
}

Buffer::Buffer(MemoryPool &pool, MemoryKind kind, size_t size, size_t origin, uint64_t seed,
               std::string label)
    : pool_(pool),
      kind_(kind),
      start_(static_cast<ptrdiff_t>(kGuard + origin)),
      seed_(seed),
      label_(std::move(label)),
      before_(size + 2 * kGuard),
      memory_(pool.take(kind, before_.size())) {
    fill_pattern(before_.data(), before_.size(), seed);
    after_ = before_;
}

Buffer::~Buffer() {
    pool_.put_back(kind_, before_.size(), memory_);
}

void Buffer::fill(ptrdiff_t position, const unsigned char *data, size_t size) {
    std::copy_n(data, size, before_.begin() + start_ + position);
    std::copy_n(data, size, after_.begin() + start_ + position);
}

void Buffer::expect(ptrdiff_t position, const unsigned char *data, size_t size) {
    const auto complement = [](unsigned char byte) { return static_cast<unsigned char>(~byte); };
    std::transform(data, data + size, before_.begin() + start_ + position, complement);
    std::copy_n(data, size, after_.begin() + start_ + position);
}

void Buffer::change(ptrdiff_t position, const unsigned char *data, size_t size) {
    std::copy_n(data, size, after_.begin() + start_ + position);
}

void Buffer::ignore(ptrdiff_t position, size_t size) {
    ignored_.emplace_back(index(position), size);
}

// Managed memory is reached by the CPU for one half of the buffers and by the driver for the other
// half, so that its pages are found on either side.
bool Buffer::by_driver(unsigned use) const {
    return kind_ == MemoryKind::device ||
           (kind_ == MemoryKind::managed && ((seed_ >> use) & 1) != 0);
}

void Buffer::upload() {
    if (by_driver(0)) {
        pool_.driver()->write(memory_, before_.data(), before_.size());
    } else {
        std::memcpy(memory_, before_.data(), before_.size());
    }
}

std::string Buffer::check() {
    std::vector<unsigned char> copy;
    const unsigned char *got = memory_;
    if (by_driver(1)) {
        copy.resize(after_.size());
        pool_.driver()->read(copy.data(), memory_, copy.size());
        got = copy.data();
    }
    for (const auto &[first, size] : ignored_) {
        std::memcpy(after_.data() + first, got + first, size);
    }
    if (std::memcmp(got, after_.data(), after_.size()) == 0) {
        return "";
    }
    const size_t wrong = std::mismatch(after_.begin(), after_.end(), got).first - after_.begin();
    char where[120];
    std::snprintf(where, sizeof(where), ", byte %td: expected 0x%02x, got 0x%02x%s",
                  static_cast<ptrdiff_t>(wrong) - start_, after_[wrong], got[wrong],
                  got[wrong] == before_[wrong] ? " as before" : "");
    return label_ + " in " + to_string(kind_) + " memory" + where;
}

}  // namespace gpushm::mpi_test::operations
