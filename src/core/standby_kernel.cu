// SPDX-License-Identifier: BSD-3-Clause
// The standby kernel: one block that stays on the GPU for a while and copies what it is told by
// StandbyControl (standby_protocol.hpp). A copy that it does takes 3.5 to 4.5 us, of which the driver
// and the copy engine take 7 (H200).
//
// Memory order, by the memory model of the PTX ISA: a lane reads its unit with an acquire load at
// system scope. What the CPU wrote before the unit happens before all that the lane does later, and by the
// barrier of the block (bar.sync, which synchronizes its threads; of the warp where one warp does all)
// before the copies of all threads. The copies happen before the next barrier, and so before thread
// 0's release store of `done`: who reads it with acquire sees them, and a kernel that is launched
// after that too.
#include "core/standby_protocol.hpp"

namespace {

using gpushm::kStandbyInline;
using gpushm::kStandbyThreads;
using gpushm::kStandbyUnitPayload;
using gpushm::kStandbyUnits;
using gpushm::kStandbyWindow;
using gpushm::StandbyControl;
using gpushm::StandbyParameters;
using gpushm::StandbyUnit;

constexpr uint32_t kLanes = 32;
constexpr uint32_t kWarps = kStandbyThreads / kLanes;
constexpr uint32_t kAllLanes = ~0u;
constexpr uint32_t kMostCommands = kStandbyWindow / 2;

// What a lane has in flight: so many words, as large as the alignment permits.
constexpr uint32_t kInFlight = 8;

/** Copies that the warps share out among themselves. */
struct Batch {
    uint32_t units;     // that it used up; 0: the kernel is to leave
    uint32_t copies;
    uint32_t pieces;    // of all copies
    uint64_t destination[kMostCommands];
    uint64_t source[kMostCommands];
    uint32_t length[kMostCommands];
    uint32_t piece[kMostCommands];        // bytes that a warp copies at a time
    uint32_t first_piece[kMostCommands];
};

__device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/** One load of 16 bytes; what it brings is never older than that of an earlier one. */
__device__ StandbyUnit load_unit(const StandbyUnit *unit) {
    uint64_t low;
    uint64_t high;
    asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "l"(unit)
                 : "memory");
    return {low, static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
}

__device__ void store_release(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ void store_release(uint64_t *word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/** Past this GPU's first-level cache, which may hold what somebody else has overwritten. */
template <typename Word>
__device__ Word load_fresh(uint64_t address) {
    return __ldcv(reinterpret_cast<const Word *>(address));
}

template <typename Word>
__device__ void store_through(uint64_t address, Word value) {
    __stwt(reinterpret_cast<Word *>(address), value);
}

// ---------------------------------------------------------------- copies

/** The size of the words by which a copy goes: the largest that both addresses are aligned to. */
__device__ uint32_t word_bytes(uint64_t destination, uint64_t source) {
    const uint64_t alignment = destination | source;
    return alignment % 16 == 0 ? 16 : alignment % 8 == 0 ? 8 : alignment % 4 == 0 ? 4 : 1;
}

__device__ uint32_t piece_bytes(uint64_t destination, uint64_t source) {
    return kLanes * kInFlight * word_bytes(destination, source);
}

/** A warp copies `bytes`, a multiple of the size of Word, between addresses that are aligned to it. */
template <typename Word>
__device__ void copy_words(uint64_t destination, uint64_t source, uint32_t bytes, uint32_t lane) {
    for (uint32_t at = lane * sizeof(Word); at < bytes; at += kInFlight * kLanes * sizeof(Word)) {
        Word words[kInFlight];
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) {
            const uint32_t offset = at + i * kLanes * static_cast<uint32_t>(sizeof(Word));
            if (offset < bytes) {
                words[i] = load_fresh<Word>(source + offset);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) {
            const uint32_t offset = at + i * kLanes * static_cast<uint32_t>(sizeof(Word));
            if (offset < bytes) {
                store_through(destination + offset, words[i]);
            }
        }
    }
}

/** Words as large as the alignment of both addresses permits; what is left over goes by bytes, which are
 *  on their way at the same time. */
__device__ void copy_piece(uint64_t destination, uint64_t source, uint32_t bytes, uint32_t lane) {
    const uint32_t word = word_bytes(destination, source);
    const uint32_t whole = bytes & ~(word - 1);
    const bool has_rest = lane < bytes - whole;
    unsigned char rest;
    if (has_rest) {
        rest = load_fresh<unsigned char>(source + whole + lane);
    }
    if (word == 16) {
        copy_words<uint4>(destination, source, whole, lane);
    } else if (word == 8) {
        copy_words<uint2>(destination, source, whole, lane);
    } else if (word == 4) {
        copy_words<uint32_t>(destination, source, whole, lane);
    } else {
        copy_words<unsigned char>(destination, source, whole, lane);
    }
    if (has_rest) {
        store_through(destination + whole + lane, rest);
    }
}

__device__ void copy_share(const Batch &batch, uint32_t warp, uint32_t lane) {
    for (uint32_t piece = warp; piece < batch.pieces; piece += kWarps) {
        const bool begins_before = lane < batch.copies && batch.first_piece[lane] <= piece;
        const uint32_t copy = kLanes - 1 - __clz(__ballot_sync(kAllLanes, begins_before));
        const uint32_t offset = (piece - batch.first_piece[copy]) * batch.piece[copy];
        copy_piece(batch.destination[copy] + offset, batch.source[copy] + offset,
                   min(batch.piece[copy], batch.length[copy] - offset), lane);
    }
}

// ---------------------------------------------------------------- commands

/** What a lane knows of the unit that it has read. */
struct Seen {
    StandbyUnit unit;
    bool begins;     // a command that is there as a whole
    uint32_t units;  // of that command
};

/** The payload of inline commands: each lane writes what its unit carries. */
__device__ void store_inline(const Seen &seen, uint32_t begins, uint32_t units, uint32_t lane) {
    // The command that a lane's unit belongs to begins at the nearest lane at or before it.
    const uint32_t first = kLanes - 1 - __clz(begins & (kAllLanes >> (kLanes - 1 - lane)));
    const uint64_t destination = __shfl_sync(kAllLanes, seen.unit.word, first);
    const uint32_t argument = __shfl_sync(kAllLanes, seen.unit.argument, first);
    if ((argument & kStandbyInline) == 0 || lane == first || lane >= units) {
        return;
    }
    const uint32_t length = argument & ~kStandbyInline;
    const uint32_t offset = (lane - first - 1) * kStandbyUnitPayload;
    const uint64_t to = destination + offset;
    const uint32_t bytes = min(kStandbyUnitPayload, length - offset);
    if (bytes >= 8 && to % 8 == 0) {
        store_through<uint64_t>(to, seen.unit.word);
    } else {
        for (uint32_t i = 0; i < min(bytes, 8u); ++i) {
            store_through<unsigned char>(to + i, static_cast<unsigned char>(seen.unit.word >> 8 * i));
        }
    }
    if (bytes == kStandbyUnitPayload && to % 4 == 0) {
        store_through<uint32_t>(to + 8, seen.unit.argument);
    } else {
        for (uint32_t i = 8; i < bytes; ++i) {
            store_through<unsigned char>(
                to + i, static_cast<unsigned char>(seen.unit.argument >> 8 * (i - 8)));
        }
    }
}

/** Whether that was all: inline payload, and one copy at most, which one warp does at once. */
__device__ bool serve_alone(const Seen &seen, uint32_t begins, uint32_t units, uint32_t lane) {
    store_inline(seen, begins, units, lane);
    const bool copies = seen.begins && (seen.unit.argument & kStandbyInline) == 0;
    const uint32_t all = __ballot_sync(kAllLanes, copies);
    const uint64_t source = __shfl_down_sync(kAllLanes, seen.unit.word, 1);
    const uint32_t large = __ballot_sync(
        kAllLanes, copies && seen.unit.argument > piece_bytes(seen.unit.word, source));
    if (large != 0 || __popc(all) > 1) {
        return false;
    }
    if (all != 0) {
        const uint32_t first = __ffs(all) - 1;
        copy_piece(__shfl_sync(kAllLanes, seen.unit.word, first),
                   __shfl_sync(kAllLanes, source, first),
                   __shfl_sync(kAllLanes, seen.unit.argument, first), lane);
    }
    return true;
}

/** Describes the copies for all warps; each lane whose unit begins one writes its own. */
__device__ void list_copies(const Seen &seen, uint32_t lane, Batch &batch) {
    const bool copies = seen.begins && (seen.unit.argument & kStandbyInline) == 0;
    const uint64_t source = __shfl_down_sync(kAllLanes, seen.unit.word, 1);
    const uint32_t piece = piece_bytes(seen.unit.word, source);
    const uint32_t mine = copies ? (seen.unit.argument + piece - 1) / piece : 0;
    uint32_t end = mine;  // of the pieces of all copies up to this one
    for (uint32_t distance = 1; distance < kLanes; distance *= 2) {
        const uint32_t before = __shfl_up_sync(kAllLanes, end, distance);
        end += lane >= distance ? before : 0;
    }
    const uint32_t all = __ballot_sync(kAllLanes, copies);
    if (copies) {
        const uint32_t index = __popc(all & ((1u << lane) - 1));
        batch.destination[index] = seen.unit.word;
        batch.source[index] = source;
        batch.length[index] = seen.unit.argument;
        batch.piece[index] = piece;
        batch.first_piece[index] = end - mine;
    }
    if (lane == kLanes - 1) {
        batch.copies = __popc(all);
        batch.pieces = end;
    }
}

/** Which lanes have read a unit that begins a command which is there as a whole; in `*units`, how many
 *  units those commands have. `there`: the lanes whose unit has the expected number. */
__device__ uint32_t find_commands(Seen &seen, uint32_t there, uint32_t lane, uint32_t *units) {
    const uint32_t there_in_a_row = __ffs(~there) - 1;
    seen.units = gpushm::standby_units(seen.unit.argument);
    seen.begins = (seen.unit.tag & 1) != 0 && lane < there_in_a_row &&
                  seen.units <= there_in_a_row - lane;
    const uint32_t begins = __ballot_sync(kAllLanes, seen.begins);
    const uint32_t last = kLanes - 1 - __clz(begins);
    *units = begins == 0 ? 0 : last + __shfl_sync(kAllLanes, seen.units, last);
    return begins;
}

/** How long the kernel stays; the last lane, which reads the beat, decides. The clock of the processor
 *  is read in no time but may run more slowly than its limits assume; the timer takes as long as a poll. */
struct Patience {
    uint64_t beat = 0;
    long long beat_seen;  // when it changed
    uint64_t end_of_life;
    uint32_t polls = 0;

    __device__ explicit Patience(const StandbyParameters &limits)
        : beat_seen(clock64()), end_of_life(nanoseconds() + limits.life_limit_ns) {}

    /** Work is as good as a beat. */
    __device__ bool ends(const StandbyUnit &unit, const StandbyParameters &limits, bool has_work) {
        constexpr uint32_t kPollsPerTimer = 8;
        const long long now = clock64();
        if (unit.word != beat || has_work) {
            beat = unit.word;
            beat_seen = now;
        }
        return now - beat_seen > limits.beat_limit_cycles || unit.argument == limits.launch ||
               (++polls % kPollsPerTimer == 0 && nanoseconds() > end_of_life);
    }
};

/** Warp 0: waits for commands and serves what is quicker done alone, inline payload and one small copy.
 *  Returns with copies for all warps in `batch`, or with no unit when the kernel is to leave. `next` is
 *  the first unit that is not served. */
__device__ void fetch(const StandbyParameters &parameters, uint32_t &next, uint32_t lane,
                      Patience &patience, Batch &batch) {
    StandbyControl &control = *parameters.control;
    for (;;) {
        const StandbyUnit *unit = lane < kStandbyWindow
                                      ? &control.units[(next + lane) % kStandbyUnits]
                                      : &control.beat;
        Seen seen;
        seen.unit = load_unit(unit);
        const bool expected =
            lane < kStandbyWindow && (seen.unit.tag >> 1) == ((next + lane) & ~0u >> 1);
        const uint32_t there = __ballot_sync(kAllLanes, expected);
        const bool ends =
            lane == kStandbyWindow && patience.ends(seen.unit, parameters, there != 0);
        if (__any_sync(kAllLanes, ends)) {
            if (lane == 0) {
                batch.units = 0;
            }
            return;
        }
        uint32_t units = 0;
        const uint32_t begins = there != 0 ? find_commands(seen, there, lane, &units) : 0;
        if (units == 0) {
            continue;
        }
        if (serve_alone(seen, begins, units, lane)) {
            __syncwarp();
            next += units;
            if (lane == 0) {
                store_release(&control.done, next);
            }
            continue;
        }
        list_copies(seen, lane, batch);
        if (lane == 0) {
            batch.units = units;
        }
        return;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kStandbyThreads)
    gpushm_standby(StandbyParameters parameters) {
    __shared__ Batch batch;
    const uint32_t warp = threadIdx.x / kLanes;
    const uint32_t lane = threadIdx.x % kLanes;
    StandbyControl &control = *parameters.control;
    Patience patience(parameters);
    if (threadIdx.x == 0) {
        store_release(&control.started, parameters.launch);
    }
    uint32_t next = parameters.first;  // warp 0 only
    for (;;) {
        if (warp == 0) {
            fetch(parameters, next, lane, patience, batch);
        }
        __syncthreads();
        if (batch.units == 0) {
            break;
        }
        copy_share(batch, warp, lane);
        next += batch.units;
        __syncthreads();
        if (threadIdx.x == 0) {
            store_release(&control.done, next);
        }
    }
    if (threadIdx.x == 0) {
        store_release(&control.left, static_cast<uint64_t>(parameters.launch) << 32 | next);
    }
}
