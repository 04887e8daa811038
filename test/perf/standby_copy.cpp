// SPDX-License-Identifier: BSD-3-Clause
#include "standby_copy.hpp"

#include "figures.hpp"
#include "ipc_exporter.hpp"
#include "memory.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/standby/standby_registry.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpushm::perf {
namespace {

constexpr double kStartLimitUs = 5e6;

// So long that hardly a sample has a launch in it.
constexpr uint32_t kBeatLimitNs = 20'000;
constexpr uint32_t kLifeLimitNs = 20'000'000;

struct Kind {
    const char *name;
    MemoryKind source, destination;
    bool payload;  // rides in the command
};

constexpr Kind kKinds[] = {
    {"standby-d2h", MemoryKind::device, MemoryKind::registered, false},
    {"standby-h2d", MemoryKind::registered, MemoryKind::device, false},
    {"standby-inline", MemoryKind::host, MemoryKind::device, true},
    {"standby-pull", MemoryKind::imported, MemoryKind::device, false},
    {"standby-push", MemoryKind::device, MemoryKind::imported, false},
    {"standby-same", MemoryKind::device, MemoryKind::device, false},
};

const Kind &kind_of(const std::string &name) {
    const auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&](const Kind &kind) { return name == kind.name; });
    if (found == std::end(kKinds)) {
        throw std::runtime_error(name + ": no such operation");
    }
    return *found;
}

class StandbyCopy : public RawOperation {
public:
    StandbyCopy(const Kind &kind, const RawSettings &settings, uint64_t seed)
        : driver_(*settings.driver), kind_(kind), seed_(seed) {
        driver_.use_device(settings.device);
        if (kind.source == MemoryKind::imported || kind.destination == MemoryKind::imported) {
            imported_ = std::make_unique<ImportedMemory>(driver_, settings.other_device,
                                                         settings.bytes, seed, settings.other_cpu);
        }
        source_ = make_memory(kind.source, settings.bytes);
        destination_ = make_memory(kind.destination, settings.bytes);
        if (kind.source != MemoryKind::imported) {
            source_->fill(0, settings.bytes, seed);
        }
        find_kernel();
        be_ready();
    }

    bool takes(size_t size) const override {
        return size <= (kind_.payload ? kStandbyMostInline : kStandbyLength);
    }

    void single(size_t size) override { copy(1, size); }
    void window(size_t size) override { copy(window_of(size), size); }

    void clear(size_t size) override { destination_->clear(0, slots_of(size) * stride_of(size)); }

    void check(size_t size, unsigned slots) override {
        for (unsigned i = 0; i < slots; ++i) {
            destination_->check(i * stride_of(size), size, seed_, i * stride_of(size));
        }
    }

private:
    struct Command {
        unsigned slot;
        StandbyTicket ticket;
    };

    std::unique_ptr<Memory> make_memory(MemoryKind kind, size_t bytes) const {
        return kind == MemoryKind::imported
                   ? std::make_unique<Memory>(&driver_, imported_->address(), bytes)
                   : std::make_unique<Memory>(&driver_, kind, bytes);
    }

    void find_kernel() {
        StandbyKernels::instance().configure(
            {StandbyConfig::Mode::whenever_possible, kBeatLimitNs, kLifeLimitNs});
        const CudaDriver *driver = CudaDriver::get();
        CUcontext context = nullptr;
        if (driver != nullptr && driver->ctx_get_current(&context) == CUDA_SUCCESS) {
            StandbyKernels::instance().prepare(context);
            kernel_ = StandbyKernels::instance().find(context, driver->context_id(context));
        }
        if (!kernel_) {
            throw std::runtime_error(
                "this build has no standby kernel, or the driver lacks what "
                "it needs");
        }
    }

    /** Returns when the kernel takes commands. */
    void be_ready() {
        const double end = now_us() + kStartLimitUs;
        while (!kernel_->alive()) {
            if (now_us() > end) {
                throw std::runtime_error("the standby kernel does not start");
            }
            kernel_->note_copy();
            StandbyKernels::instance().tend(StandbyKernel::Moment::idle);
        }
    }

    void copy(unsigned count, size_t size) {
        be_ready();
        for (unsigned i = 0; i < count; ++i) {
            give(i % slots_of(size), size);
        }
        while (given_ > 0) {
            finish_oldest(size);
        }
    }

    /** With a kernel that takes no more, the copies before it are waited for. */
    void give(unsigned slot, size_t size) {
        const size_t at = slot * stride_of(size);
        StandbyJob copy = {destination_->address() + at, source_->address() + at, size};
        copy.cpu_may_read = kind_.payload;
        copy.cpu_may_write = kind_.destination == MemoryKind::registered;
        copy.to_own_gpu = kind_.destination == MemoryKind::device;
        StandbyTicket ticket;
        while (!kernel_->give(copy, &ticket)) {
            if (given_ > 0) {
                finish_oldest(size);
            } else {
                be_ready();
            }
        }
        commands_[(oldest_ + given_++) % kMaxCommands] = {slot, ticket};
    }

    /** What a kernel left undone at the end of its life is given to the next one. */
    void finish_oldest(size_t size) {
        Command command = commands_[oldest_ % kMaxCommands];
        ++oldest_;
        --given_;
        StandbyKernel::State state;
        while ((state = kernel_->state(&command.ticket)) == StandbyKernel::State::waiting) {
        }
        if (state == StandbyKernel::State::not_served) {
            give(command.slot, size);
        }
    }

    static constexpr unsigned kMaxCommands = 64;  // window_of gives no more

    const Driver &driver_;
    const Kind kind_;
    const uint64_t seed_;
    std::unique_ptr<ImportedMemory> imported_;
    std::unique_ptr<Memory> source_;
    std::unique_ptr<Memory> destination_;
    std::shared_ptr<StandbyKernel> kernel_;
    Command commands_[kMaxCommands] = {};  // a ring
    unsigned oldest_ = 0;
    unsigned given_ = 0;
};

}  // namespace

std::vector<std::string> standby_operations() {
    std::vector<std::string> names;
    for (const Kind &kind : kKinds) {
        names.push_back(kind.name);
    }
    return names;
}

std::unique_ptr<RawOperation> make_standby_copy(const std::string &name,
                                                const RawSettings &settings, uint64_t seed) {
    return std::make_unique<StandbyCopy>(kind_of(name), settings, seed);
}

}  // namespace gpushm::perf
