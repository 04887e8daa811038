// SPDX-License-Identifier: BSD-3-Clause
#include "raw_operations.hpp"

#include "figures.hpp"
#include "ipc_exporter.hpp"
#include "memory.hpp"
#include "staged_copy.hpp"
#include "standby_copy.hpp"

#include <cstring>
#include <stdexcept>
#include <vector>

namespace gpushm::perf {
namespace {

constexpr uint64_t kSeed = 0x726177;  // any

class HostCopy : public RawOperation {
public:
    explicit HostCopy(const RawSettings &settings)
        : source_(nullptr, MemoryKind::host, settings.bytes),
          destination_(nullptr, MemoryKind::host, settings.bytes) {
        source_.fill(0, settings.bytes, kSeed);
        destination_.clear(0, settings.bytes);
    }

    void single(size_t size) override { copy(0, size); }

    void window(size_t size) override {
        for (unsigned i = 0; i < window_of(size); ++i) {
            copy(i % slots_of(size) * stride_of(size), size);
        }
    }

    void clear(size_t size) override { destination_.clear(0, slots_of(size) * stride_of(size)); }

    void check(size_t size, unsigned slots) override {
        for (unsigned i = 0; i < slots; ++i) {
            destination_.check(i * stride_of(size), size, kSeed, i * stride_of(size));
        }
    }

private:
    void copy(size_t at, size_t size) {
        std::memcpy(destination_.address() + at, source_.address() + at, size);
        asm volatile("" ::: "memory");  // else the compiler may leave out copies
    }

    Memory source_;
    Memory destination_;
};

/** One stream between two memories. */
class DeviceCopy : public RawOperation {
public:
    DeviceCopy(const RawSettings &settings, Direction direction)
        : queue_(*settings.driver, settings.device, direction),
          destination_(
              settings.driver,
              direction == Direction::device_to_host ? MemoryKind::registered : MemoryKind::device,
              settings.bytes) {
        if (direction == Direction::device_to_device) {
            imported_ = std::make_unique<ImportedMemory>(*settings.driver, settings.other_device,
                                                         settings.bytes, kSeed, settings.other_cpu);
            from_ = imported_->address();
            return;
        }
        source_ = std::make_unique<Memory>(
            settings.driver,
            direction == Direction::device_to_host ? MemoryKind::device : MemoryKind::registered,
            settings.bytes);
        source_->fill(0, settings.bytes, kSeed);
        from_ = source_->address();
    }

    void single(size_t size) override {
        queue_.start(slot(0, size));
        queue_.finish();
    }

    void window(size_t size) override {
        for (unsigned i = 0; i < window_of(size); ++i) {
            queue_.start(slot(i, size));
        }
        queue_.finish();
    }

    bool batch(size_t size) override {
        std::vector<Copy> copies;
        for (unsigned i = 0; i < window_of(size); ++i) {
            copies.push_back(slot(i, size));
        }
        const bool started = queue_.start_batch(copies);
        queue_.finish();
        return started;
    }

    void clear(size_t size) override { destination_.clear(0, slots_of(size) * stride_of(size)); }

    void check(size_t size, unsigned slots) override {
        for (unsigned i = 0; i < slots; ++i) {
            destination_.check(i * stride_of(size), size, kSeed, i * stride_of(size));
        }
    }

private:
    Copy slot(unsigned i, size_t size) const {
        const size_t at = i % slots_of(size) * stride_of(size);
        return {destination_.address() + at, from_ + at, size};
    }

    CopyQueue queue_;  // first: makes the device current
    Memory destination_;
    std::unique_ptr<Memory> source_;
    std::unique_ptr<ImportedMemory> imported_;
    const char *from_ = nullptr;
};

}  // namespace

std::unique_ptr<RawOperation> make_raw_operation(const std::string &name,
                                                 const RawSettings &settings) {
    if (name == "memcpy") {
        return std::make_unique<HostCopy>(settings);
    }
    if (settings.driver == nullptr) {
        throw std::runtime_error(name + " needs a CUDA driver");
    }
    if (name == "d2h") {
        return std::make_unique<DeviceCopy>(settings, Direction::device_to_host);
    }
    if (name == "h2d") {
        return std::make_unique<DeviceCopy>(settings, Direction::host_to_device);
    }
    if (name == "peer") {
        return std::make_unique<DeviceCopy>(settings, Direction::device_to_device);
    }
    if (name == "staged") {
        return make_staged_copy(settings, kSeed);
    }
    return make_standby_copy(name, settings, kSeed);
}

}  // namespace gpushm::perf
