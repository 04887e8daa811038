// SPDX-License-Identifier: BSD-3-Clause
// The GPU's side of core/kernels/standby_protocol.hpp, as core/kernels/standby_kernel.cu does it:
// stays for a while, polls the units of a control block and copies what it is told there.
#include "kernel.hpp"

#include "core/kernels/standby_protocol.hpp"
#include "core/standby/standby_unit.hpp"
#include "engine.hpp"
#include "settings.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace simcuda {

namespace {

using gpushm::StandbyControl;
using gpushm::StandbyParameters;
using gpushm::StandbyUnit;

bool is_inline(const StandbyUnit &first) {
    return (first.argument & gpushm::kStandbyInline) != 0;
}

std::uint32_t length_of(const StandbyUnit &first) {
    return first.argument & gpushm::kStandbyLength;
}

bool is_answer(const StandbyUnit &first) {
    return (first.argument & gpushm::kStandbyAnswer) != 0;
}

bool reads_ahead(const StandbyUnit &first) {
    return (first.argument & gpushm::kStandbyReadAhead) != 0;
}

bool is_of_rows(const StandbyUnit &first) {
    return (first.argument & gpushm::kStandbyRows) != 0;
}

// Whether the protocol permits a command of rows, which is there as a whole.
bool is_valid_of_rows(const StandbyUnit *command) {
    constexpr std::uint32_t kOthers =
        gpushm::kStandbyInline | gpushm::kStandbyAnswer | gpushm::kStandbyReadAhead;
    const std::uint32_t length = length_of(*command);
    const std::uint32_t count = command[1].argument;
    const auto is_pitch = [length](std::uint64_t pitch) {
        return pitch >= length && pitch <= gpushm::kStandbyMostPitch;
    };
    return (command->argument & kOthers) == 0 && length != 0 && count != 0 &&
           length <= gpushm::kStandbyMostRowBytes / count && is_pitch(command[2].word) &&
           is_pitch(command[2].argument);
}

bool ends_batch(const StandbyUnit &first) {
    return (first.argument & gpushm::kStandbyEndsBatch) != 0;
}

// The payload that an inline command's units carry, to `target`.
void copy_payload(char *target, const StandbyUnit *command) {
    constexpr std::uint32_t kPart = gpushm::kStandbyUnitPayload;
    const std::uint32_t length = length_of(*command);
    for (std::uint32_t at = 0; at < length; at += kPart) {
        std::memcpy(target + at, ++command, std::min(kPart, length - at));
    }
}

// What the kernel sees with one look.
struct Window {
    StandbyUnit units[gpushm::kStandbyWindow];
    StandbyUnit beat;
    std::vector<const StandbyUnit *> commands{};  // the first unit of each that is there as a whole
    std::uint32_t used = 0;                       // the units of these commands
};

class Standby {
public:
    Standby(const Context &context, StandbyControl &control, const StandbyParameters &parameters)
        : context_(context),
          control_(control),
          parameters_(parameters),
          next_(parameters.first),
          random_(seed_ + parameters.launch) {}

    // Called with the lock held, which it lets go of most of the time.
    CUresult run(Lock &lock);

private:
    CUresult stay(Lock &lock);
    Window look() const;
    CUresult find_commands(Window *window) const;
    bool leaves(const Window &window);
    CUresult serve(Lock &lock, Window *window);
    CUresult copy(Lock &lock, const StandbyUnit *command, bool alone) const;
    CUresult copy_rows(Lock &lock, const StandbyUnit *command) const;
    CUresult read_ahead(Lock &lock, const StandbyUnit *command);
    CUresult answer(Lock &lock, const StandbyUnit *command);
    bool over(Clock::time_point since, std::uint32_t limit_ns, Clock::time_point now) const;
    void pause();

    const Context &context_;
    StandbyControl &control_;
    const StandbyParameters parameters_;
    std::uint32_t next_;           // the first unit that is not served
    std::uint64_t held_from_ = 0;  // what was read ahead
    std::vector<char> held_{};
    std::uint32_t reader_ = 0;  // by the command of this number; 0: nothing

    const std::uint64_t seed_ = Settings::get().seed;
    std::mt19937_64 random_;
    const std::uint64_t dies_after_ = Settings::get().kernel_dies;
    // Commands that it serves before it dies.
    std::uint64_t serves_ =
        dies_after_ != 0 ? dies_after_ : std::numeric_limits<std::uint64_t>::max();

    const Clock::time_point began_ = Clock::now();
    Clock::time_point beat_seen_ = began_;  // when it changed
    std::uint64_t beat_ = 0;
};

CUresult Standby::run(Lock &lock) {
    lock.unlock();
    __atomic_store_n(&control_.started, parameters_.launch, __ATOMIC_RELEASE);
    const CUresult result = stay(lock);
    lock.lock();
    return result;
}

CUresult Standby::stay(Lock &lock) {
    do {
        Window window = look();
        CUresult result = find_commands(&window);
        if (result == CUDA_SUCCESS && leaves(window)) {
            const std::uint64_t left = std::uint64_t{parameters_.launch} << 32 | next_;
            __atomic_store_n(&control_.left, left, __ATOMIC_RELEASE);
            return CUDA_SUCCESS;
        }
        if (result == CUDA_SUCCESS && !window.commands.empty()) {
            result = serve(lock, &window);
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
    } while (kernel_may_poll(context_));
    return CUDA_SUCCESS;
}

Window Standby::look() const {
    Window window;
    for (std::uint32_t i = 0; i < gpushm::kStandbyWindow; ++i) {
        window.units[i] = gpushm::load_unit(control_.units[(next_ + i) % gpushm::kStandbyUnits]);
    }
    window.beat = gpushm::load_unit(control_.beat);
    return window;
}

// CUDA_ERROR_ILLEGAL_ADDRESS if there is a command that nobody may give.
CUresult Standby::find_commands(Window *window) const {
    constexpr std::uint32_t kNumber = std::numeric_limits<std::uint32_t>::max() >> 1;
    std::uint32_t there = 0;
    while (there < gpushm::kStandbyWindow &&
           window->units[there].tag >> 1 == ((next_ + there) & kNumber)) {
        ++there;
    }
    while (window->used < there && window->commands.size() < serves_) {
        const StandbyUnit &first = window->units[window->used];
        if ((is_inline(first) && length_of(first) > gpushm::kStandbyMostInline) ||
            (is_answer(first) &&
             (length_of(first) > gpushm::kStandbyMostAnswer || window->used != 0)) ||
            (reads_ahead(first) && (is_inline(first) || is_answer(first)))) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        const std::uint32_t units = gpushm::standby_units(first.argument);
        if ((first.tag & 1) == 0 || units > there - window->used) {
            break;
        }
        if (is_of_rows(first) && !is_valid_of_rows(&first)) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        if (is_of_rows(first) && window->used != 0) {  // it is served by itself
            break;
        }
        window->commands.push_back(&first);
        window->used += units;
        if (is_answer(first) || is_of_rows(first) || ends_batch(first)) {
            break;
        }
    }
    return CUDA_SUCCESS;
}

bool Standby::over(Clock::time_point since, std::uint32_t limit_ns, Clock::time_point now) const {
    const std::chrono::duration<double, std::nano> limit(limit_ns *
                                                         Settings::get().kernel_time_scale);
    return now - since > limit;
}

// Also when there are commands, which it does not serve then. The clock of the simulated GPU counts
// nanoseconds (CU_DEVICE_ATTRIBUTE_CLOCK_RATE).
bool Standby::leaves(const Window &window) {
    const auto now = Clock::now();
    if (window.beat.word != beat_) {
        beat_ = window.beat.word;
        beat_seen_ = now;
    }
    return over(beat_seen_, parameters_.beat_limit_cycles, now) ||
           over(began_, parameters_.life_limit_ns, now) ||
           window.beat.argument == parameters_.launch;
}

// The threads of the block share the copies of a window out among themselves, so that these end in
// any order; `done` is written once, behind all of them.
CUresult Standby::serve(Lock &lock, Window *window) {
    auto &commands = window->commands;
    // Several at once are served as if none had to do with reading ahead.
    const StandbyUnit *const only = commands.size() == 1 ? commands.front() : nullptr;
    if (seed_ != 0) {
        std::shuffle(commands.begin(), commands.end(), random_);
    }
    for (const StandbyUnit *command : commands) {
        pause();
        const CUresult result = is_answer(*command)    ? answer(lock, command)
                                : is_of_rows(*command) ? copy_rows(lock, command)
                                                       : copy(lock, command, command == only);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    pause();
    const std::uint32_t number = std::exchange(next_, next_ + window->used);
    __atomic_store_n(&control_.done, next_, __ATOMIC_RELEASE);
    serves_ -= commands.size();
    if (serves_ == 0) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    if (only == nullptr || !reads_ahead(*only)) {
        return CUDA_SUCCESS;
    }
    reader_ = number;
    return read_ahead(lock, only);
}

CUresult Standby::read_ahead(Lock &lock, const StandbyUnit *command) {
    pause();
    const StandbyUnit &next = command[2];
    if (next.argument > gpushm::kStandbyMostAhead) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    held_from_ = next.word;
    held_.resize(next.argument);
    lock.lock();
    Span from;
    const CUresult result = find_kernel_memory(next.word, next.argument, false, context_, &from);
    if (result == CUDA_SUCCESS) {
        std::memcpy(held_.data(), from.access(), next.argument);
    }
    lock.unlock();
    return result;
}

// `alone`: no other command is there.
CUresult Standby::copy(Lock &lock, const StandbyUnit *command, bool alone) const {
    const std::uint32_t length = length_of(*command);
    if (length == 0) {
        return CUDA_SUCCESS;
    }
    lock.lock();
    Transfer transfer;
    transfer.bytes = length;
    CUresult result = find_kernel_memory(command->word, length, true, context_, &transfer.to);
    if (result == CUDA_SUCCESS && is_inline(*command)) {
        copy_payload(transfer.to.access(), command);
    } else if (result == CUDA_SUCCESS && alone && command[1].argument != 0 &&
               command[1].argument == reader_) {
        if (command[1].word != held_from_ || length > held_.size()) {
            result = CUDA_ERROR_ILLEGAL_ADDRESS;
        } else {
            std::memcpy(transfer.to.access(), held_.data(), length);
        }
    } else if (result == CUDA_SUCCESS) {
        result = find_kernel_memory(command[1].word, length, false, context_, &transfer.from);
        result = result != CUDA_SUCCESS ? result : transfer.run(lock);
    }
    lock.unlock();
    return result;
}

CUresult Standby::copy_rows(Lock &lock, const StandbyUnit *command) const {
    const std::size_t length = length_of(*command);
    const std::size_t count = command[1].argument;
    const std::size_t to_pitch = command[2].word;
    const std::size_t from_pitch = command[2].argument;
    Span to;
    Span from;
    lock.lock();
    CUresult result =
        find_kernel_memory(command->word, (count - 1) * to_pitch + length, true, context_, &to);
    if (result == CUDA_SUCCESS) {
        result = find_kernel_memory(command[1].word, (count - 1) * from_pitch + length, false,
                                    context_, &from);
    }
    for (std::size_t row = 0; result == CUDA_SUCCESS && row < count; ++row) {
        std::memcpy(to.access() + row * to_pitch, from.access() + row * from_pitch, length);
    }
    lock.unlock();
    return result;
}

// Its units come in any order.
CUresult Standby::answer(Lock &lock, const StandbyUnit *command) {
    const std::uint32_t length = length_of(*command);
    std::vector<char> bytes(length);
    lock.lock();
    Span from;
    const CUresult result = find_kernel_memory(command[1].word, length, false, context_, &from);
    if (result == CUDA_SUCCESS) {
        std::memcpy(bytes.data(), from.access(), length);
    }
    lock.unlock();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    constexpr std::uint32_t kPart = gpushm::kStandbyUnitPayload;
    std::vector<std::uint32_t> order((length + kPart - 1) / kPart);
    std::iota(order.begin(), order.end(), 0);
    if (seed_ != 0) {
        std::shuffle(order.begin(), order.end(), random_);
    }
    for (const std::uint32_t index : order) {
        StandbyUnit unit{};
        const std::uint32_t at = index * kPart;
        std::memcpy(&unit, &bytes[at], std::min(kPart, length - at));
        unit.tag = static_cast<std::uint32_t>(command->word);
        gpushm::store_unit(control_.answer[index], unit);
    }
    return CUDA_SUCCESS;
}

void Standby::pause() {
    if (seed_ != 0) {
        std::uniform_real_distribution<double> microseconds(0, 3 * Settings::get().delay_us);
        std::this_thread::sleep_for(
            std::chrono::duration<double, std::micro>(microseconds(random_)));
    }
}

}  // namespace

CUresult run_standby(Lock &lock, Context &context, const void *parameter) {
    StandbyParameters parameters;
    std::memcpy(&parameters, parameter, sizeof(parameters));
    const auto address = reinterpret_cast<std::uintptr_t>(parameters.control);
    if (address % alignof(StandbyControl) != 0) {
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    }
    Span block;  // keeps the memory
    const CUresult result =
        find_kernel_memory(address, sizeof(StandbyControl), true, context, &block);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    auto &control = *reinterpret_cast<StandbyControl *>(block.access());
    return Standby(context, control, parameters).run(lock);
}

}  // namespace simcuda
