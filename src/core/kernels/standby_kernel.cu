// SPDX-License-Identifier: BSD-3-Clause
// The standby kernel: a block, or a cluster of blocks, that stays on the GPU for a while and makes
// the copies that it finds in StandbyControl (standby_protocol.hpp). doc/decisions/standby-why.md
// has what that gains.
//
// The first block of a cluster makes small copies alone. All blocks make a part of a large copy,
// because one processor moves less than the bus (doc/decisions/standby-blocks.md). The other blocks
// wait at the barrier of the cluster meanwhile.
//
// Memory order, by the memory model of the PTX ISA:
// - A lane reads its unit with an acquire load at system scope. All that the CPU wrote before the
//   unit happens before all that the lane does later.
// - By the barrier of the block (bar.sync; that of the warp where one warp does everything) it
//   happens before the copies of all threads.
// - The copies happen before the next barrier, and so before thread 0's release store of `done`. A
//   CPU that reads `done` with acquire sees them, and so does a kernel that is launched after that.
// - The barrier of the cluster (arrive.release, wait.acquire) does this for the threads of all
//   blocks: causality order goes through barriers of any scope that includes both threads.
//
// A release store at system scope waits until the host and all peers have taken the stores to them.
// If all copies went to memory of this GPU, a fence of the GPU's scope is quicker
// (doc/decisions/standby-device-code.md). Behind it the bytes are in this GPU's second-level cache.
// Kernels and copy engines of the GPU, peers and network cards read that memory through this cache;
// the CPU does not read it. The PTX model lets such a fence order the actions of this GPU's
// threads. It does not say anything of a CPU that stands between them and launches the later one.
//
// Bytes that are read ahead: the warps of the first block but warp 0 load them into shared memory,
// behind the barrier that ends the copy, and so behind the lanes' acquire loads. By the barrier
// before the next batch all warps see them.
//
// Commands of rows: standby_rows.hpp.
#include "core/kernels/standby_memory.hpp"
#include "core/kernels/standby_protocol.hpp"
#include "core/kernels/standby_rows.hpp"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define GPUSHM_HAS_CLUSTERS
#endif

namespace {

using gpushm::kStandbyAnswer;
using gpushm::kStandbyAnswerUnits;
using gpushm::kStandbyClusterBlocks;
using gpushm::kStandbyClusterThreads;
using gpushm::kStandbyEndsBatch;
using gpushm::kStandbyInline;
using gpushm::kStandbyLength;
using gpushm::kStandbyMostAhead;
using gpushm::kStandbyOwnGpu;
using gpushm::kStandbyReadAhead;
using gpushm::kStandbyRows;
using gpushm::kStandbyThreads;
using gpushm::kStandbyUnitPayload;
using gpushm::kStandbyUnits;
using gpushm::kStandbyWindow;
using gpushm::StandbyControl;
using gpushm::StandbyParameters;

constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = ~0u;
constexpr uint32_t kMaxCommands = kStandbyWindow / 2;

// So many words a lane has in flight, as large as the alignment permits.
constexpr uint32_t kInFlight = 8;

// Host memory comes in lines of so many bytes. Two loads of a warp that share a line wait for each
// other: doc/decisions/standby-lines.md.
constexpr uint32_t kLine = 64;

constexpr uint32_t kBeatLane = kStandbyWindow;

struct Copy {
    uint64_t destination;
    uint64_t source;
    uint32_t length;
};

/** Where the destinations of copies are. */
enum class Reach { own_gpu, anywhere };

/** Bytes to be read ahead. */
struct Ahead {
    uint64_t source;
    uint32_t length;  // 0: nothing
};

/** Bytes that were read ahead. They begin as far behind the beginning of `lines` as their source
 * begins behind the beginning of a line. */
struct Held {
    alignas(16) unsigned char lines[kStandbyMostAhead + kLine];
};

/** Copies that the warps divide among themselves, in pieces. Without units it has no pieces. */
struct Batch {
    uint32_t units;  // that it used up; 0: the kernel is to leave
    uint32_t copies;
    uint32_t pieces;  // of all copies
    Reach reach;
    uint32_t is_held;  // it is one copy, of bytes that were read ahead
    Ahead ahead;       // to be read behind the copies
    Copy copy[kMaxCommands];
    uint32_t piece_shift[kMaxCommands];  // see piece_shift()
    uint32_t first_piece[kMaxCommands];
};

/** Stores `done`, ordered behind copies to `reach`. */
__device__ void publish(uint32_t *word, uint32_t value, Reach reach) {
    if (reach == Reach::own_gpu) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        store_relaxed(word, value);
    } else {
        store_release(word, value);
    }
}

// ---------------------------------------------------------------- copies

/** The size of the words of a copy as a power of two: the largest to which both addresses are
 * aligned.
 */
__device__ uint32_t word_shift(const Copy &copy) {
    const uint64_t alignment = copy.destination | copy.source;
    return alignment % 16 == 0 ? 4 : alignment % 8 == 0 ? 3 : alignment % 4 == 0 ? 2 : 0;
}

/** The bytes that a warp copies at a time, as a power of two, which avoids a division
 * (doc/decisions/standby-device-code.md). */
__device__ uint32_t piece_shift(const Copy &copy) {
    constexpr uint32_t kWordsShift = 8;
    static_assert(kLanes * kInFlight == 1u << kWordsShift, "of all lanes");
    return kWordsShift + word_shift(copy);
}

/** How far the address is behind the beginning of a line. */
__device__ uint32_t line_offset(uint64_t address) {
    return static_cast<uint32_t>(address) % kLine;
}

/** Pieces are counted from the line in which the source begins, so that all but the first begin
 * with a line. */
__device__ uint32_t pieces_of(const Copy &copy, uint32_t shift) {
    return (line_offset(copy.source) + copy.length + (1u << shift) - 1) >> shift;
}

__device__ Copy piece_of(const Copy &copy, uint32_t shift, uint32_t index) {
    const uint32_t before = line_offset(copy.source);
    const uint32_t begin = index == 0 ? 0 : (index << shift) - before;
    const uint32_t end = min(((index + 1) << shift) - before, copy.length);
    return {copy.destination + begin, copy.source + begin, end - begin};
}

/** A warp copies `bytes`, a multiple of the size of Word, between addresses that are aligned to it.
 * All of its loads but the first and the last one are of whole lines (of half a line if Word is a
 * byte).
 */
template <typename Word>
__device__ __forceinline__ void copy_words(uint64_t destination, uint64_t source, uint32_t bytes,
                                           uint32_t lane) {
    const uint32_t first = line_offset(source);
    const uint32_t end = first + bytes;
    source -= first;
    destination -= first;
    for (uint32_t at = lane * sizeof(Word); at < end; at += kInFlight * kLanes * sizeof(Word)) {
        Word words[kInFlight];
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) {
            const uint32_t offset = at + i * kLanes * static_cast<uint32_t>(sizeof(Word));
            if (offset >= first && offset < end) {
                words[i] = load_fresh<Word>(source + offset);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) {
            const uint32_t offset = at + i * kLanes * static_cast<uint32_t>(sizeof(Word));
            if (offset >= first && offset < end) {
                store_through(destination + offset, words[i]);
            }
        }
    }
}

/** A warp copies words as large as the alignment of both addresses permits, and the rest by bytes,
 * which are in flight at the same time. */
__device__ __forceinline__ void copy_piece(const Copy &piece, uint32_t lane) {
    const uint32_t shift = word_shift(piece);
    const uint32_t whole = piece.length >> shift << shift;
    const bool has_rest = lane < piece.length - whole;
    unsigned char rest;
    if (has_rest) {
        rest = load_fresh<unsigned char>(piece.source + whole + lane);
    }
    if (shift == 4) {
        copy_words<uint4>(piece.destination, piece.source, whole, lane);
    } else if (shift == 3) {
        copy_words<uint2>(piece.destination, piece.source, whole, lane);
    } else if (shift == 2) {
        copy_words<uint32_t>(piece.destination, piece.source, whole, lane);
    } else {
        copy_words<unsigned char>(piece.destination, piece.source, whole, lane);
    }
    if (has_rest) {
        store_through(piece.destination + whole + lane, rest);
    }
}

/** Copies the share of warp number `member` of `members`. */
__device__ void copy_share(const Batch &batch, uint32_t member, uint32_t members, uint32_t lane) {
    for (uint32_t piece = member; piece < batch.pieces; piece += members) {
        const bool begins_before = lane < batch.copies && batch.first_piece[lane] <= piece;
        const uint32_t index = kLanes - 1 - __clz(__ballot_sync(kAllLanes, begins_before));
        const Copy &copy = batch.copy[index];
        copy_piece(piece_of(copy, batch.piece_shift[index], piece - batch.first_piece[index]),
                   lane);
    }
}

// ---------------------------------------------------------------- reading ahead

/** All threads but those of warp 0, which polls meanwhile, load the bytes by words of 16 bytes. The
 * first and the last word may include neighbouring bytes, on the same page. */
template <uint32_t kThreads>
__device__ void read_ahead(const Ahead &ahead, Held &held) {
    using Word = uint4;
    constexpr uint32_t kReaders = kThreads - kLanes;
    constexpr uint32_t kWord = sizeof(Word);
    constexpr uint32_t kInFlight = 4;  // doc/decisions/standby-device-code.md
    const uint64_t line = ahead.source - line_offset(ahead.source);
    const uint32_t first = line_offset(ahead.source) / kWord * kWord;
    const uint32_t end = line_offset(ahead.source) + min(ahead.length, kStandbyMostAhead);
    for (uint32_t at = (threadIdx.x - kLanes) * kWord; at < end;
         at += kInFlight * kReaders * kWord) {
        Word words[kInFlight];
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) {
            const uint32_t offset = at + i * kReaders * kWord;
            if (offset >= first && offset < end) {
                words[i] = load_fresh<Word>(line + offset);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) {
            const uint32_t offset = at + i * kReaders * kWord;
            if (offset >= first && offset < end) {
                *reinterpret_cast<Word *>(&held.lines[offset]) = words[i];
            }
        }
    }
}

/** All threads of the block store bytes that were read ahead. `bytes` is a multiple of the size of
 * Word. */
template <typename Word, uint32_t kThreads>
__device__ void store_held_words(const Copy &copy, uint32_t bytes, const Held &held) {
    const unsigned char *source = &held.lines[line_offset(copy.source)];
#pragma unroll 1
    for (uint32_t at = threadIdx.x * sizeof(Word); at < bytes; at += kThreads * sizeof(Word)) {
        store_through(copy.destination + at, *reinterpret_cast<const Word *>(source + at));
    }
}

template <uint32_t kThreads>
__device__ void store_held(const Copy &copy, const Held &held) {
    const uint32_t shift = word_shift(copy);
    const uint32_t whole = copy.length >> shift << shift;
    if (shift == 4) {
        store_held_words<uint4, kThreads>(copy, whole, held);
    } else if (shift == 3) {
        store_held_words<uint2, kThreads>(copy, whole, held);
    } else if (shift == 2) {
        store_held_words<uint32_t, kThreads>(copy, whole, held);
    } else {
        store_held_words<unsigned char, kThreads>(copy, whole, held);
    }
    if (threadIdx.x < copy.length - whole) {
        const uint32_t at = whole + threadIdx.x;
        store_through(copy.destination + at, held.lines[line_offset(copy.source) + at]);
    }
}

// ---------------------------------------------------------------- commands

/** The unit that a lane has read. */
struct Seen {
    StandbyUnit unit;
    bool begins;     // it begins a command that is there as a whole
    uint32_t units;  // of that command
};

/** Stores the payload in the unit at `index` of a command's payload. */
__device__ void store_payload(const StandbyUnit &unit, uint32_t index, uint64_t destination,
                              uint32_t length) {
    const uint32_t offset = index * kStandbyUnitPayload;
    const uint64_t to = destination + offset;
    const uint32_t bytes = min(kStandbyUnitPayload, length - offset);
    if (bytes >= 8 && to % 8 == 0) {
        store_through<uint64_t>(to, unit.word);
    } else {
        for (uint32_t i = 0; i < min(bytes, 8u); ++i) {
            store_through<unsigned char>(to + i, static_cast<unsigned char>(unit.word >> 8 * i));
        }
    }
    if (bytes == kStandbyUnitPayload && to % 4 == 0) {
        store_through<uint32_t>(to + 8, unit.argument);
    } else {
        for (uint32_t i = 8; i < bytes; ++i) {
            store_through<unsigned char>(to + i,
                                         static_cast<unsigned char>(unit.argument >> 8 * (i - 8)));
        }
    }
}

/** Stores the payload of inline commands: each lane that in its unit. */
__device__ void store_inline(const Seen &seen, uint32_t begins, uint32_t units, uint32_t lane) {
    // The command of a lane's unit begins at the nearest lane at or before it.
    const uint32_t first = kLanes - 1 - __clz(begins & (kAllLanes >> (kLanes - 1 - lane)));
    const uint64_t destination = __shfl_sync(kAllLanes, seen.unit.word, first);
    const uint32_t argument = __shfl_sync(kAllLanes, seen.unit.argument, first);
    if ((argument & kStandbyInline) != 0 && lane != first && lane < units) {
        store_payload(seen.unit, lane - first - 1, destination, argument & kStandbyLength);
    }
}

/** The copy whose command begins at a lane. */
__device__ Copy copy_at(const Seen &seen, uint32_t lane) {
    return {__shfl_sync(kAllLanes, seen.unit.word, lane),
            __shfl_sync(kAllLanes, seen.unit.word, lane + 1),
            __shfl_sync(kAllLanes, seen.unit.argument, lane) & kStandbyLength};
}

/** A warp answers with the bytes at the copy's source. The copy's destination is the answer's
 * number.
 */
__device__ void store_answer(StandbyControl &control, const Copy &copy, uint32_t lane) {
    constexpr uint32_t kWords = kStandbyUnitPayload / sizeof(uint32_t);
    static_assert(kStandbyAnswerUnits == kLanes, "a unit a lane");
    const uint32_t offset = lane * kStandbyUnitPayload;
    if (offset < copy.length) {
        uint32_t words[kWords] = {};
#pragma unroll
        for (uint32_t i = 0; i < kWords; ++i) {
            const uint32_t at = offset + i * static_cast<uint32_t>(sizeof(uint32_t));
            if (at < copy.length) {
                words[i] = load_fresh<uint32_t>(copy.source + at);
            }
        }
        store_unit(&control.answer[lane], static_cast<uint64_t>(words[1]) << 32 | words[0],
                   words[2], static_cast<uint32_t>(copy.destination));
    }
}

/** Whether the first command asks for an answer, and is there as a whole. Nothing else is under way
 * then. */
__device__ bool is_answer(const Seen &seen, uint32_t there) {
    const uint32_t argument = __shfl_sync(kAllLanes, seen.unit.argument, 0);
    return (argument & kStandbyAnswer) != 0 && (there & 3) == 3;
}

/** Whether one warp makes the copy alone, which is quicker than to tell the others. */
__device__ bool is_small(const Copy &copy) {
    return pieces_of(copy, piece_shift(copy)) <= 1;
}

/** Whether nothing is there but one command, of `units`, whose first unit has `argument`. That is
 * the usual case, and the quickest to find out. */
__device__ bool is_one_command(uint32_t there, uint32_t argument, uint32_t *units) {
    *units = gpushm::standby_units(argument);
    return *units <= kStandbyWindow && there == (1u << *units) - 1;
}

/** Serves inline payload. Whether nothing else was there but one small copy, which goes to `copy`
 * (length 0: not even that). */
__device__ bool is_little(const Seen &seen, uint32_t begins, uint32_t units, uint32_t lane,
                          Copy &copy) {
    store_inline(seen, begins, units, lane);
    const bool copies = seen.begins && (seen.unit.argument & kStandbyInline) == 0;
    const uint32_t all = __ballot_sync(kAllLanes, copies);
    if (all == 0) {
        copy.length = 0;
        return true;
    }
    copy = copy_at(seen, __ffs(all) - 1);
    return __popc(all) == 1 && is_small(copy);
}

/** Describes one copy for all warps. */
__device__ void list_copy(const Copy &copy, uint32_t index, uint32_t first_piece, Batch &batch) {
    batch.copy[index] = copy;
    batch.piece_shift[index] = piece_shift(copy);
    batch.first_piece[index] = first_piece;
}

/** Describes the copies for all warps. Each lane whose unit begins a copy writes that one. */
__device__ void list_copies(const Seen &seen, uint32_t lane, Batch &batch) {
    const bool copies = seen.begins && (seen.unit.argument & kStandbyInline) == 0;
    const Copy copy = {seen.unit.word, __shfl_down_sync(kAllLanes, seen.unit.word, 1),
                       seen.unit.argument & kStandbyLength};
    const uint32_t mine = copies ? pieces_of(copy, piece_shift(copy)) : 0;
    uint32_t end = mine;  // of the pieces of all copies up to this one
    for (uint32_t distance = 1; distance < kLanes; distance *= 2) {
        const uint32_t before = __shfl_up_sync(kAllLanes, end, distance);
        end += lane >= distance ? before : 0;
    }
    const uint32_t all = __ballot_sync(kAllLanes, copies);
    if (copies) {
        list_copy(copy, __popc(all & ((1u << lane) - 1)), end - mine, batch);
    }
    if (lane == kLanes - 1) {
        batch.copies = __popc(all);
        batch.pieces = end;
        batch.is_held = 0;
        batch.ahead = {};
    }
}

/** The lanes whose unit begins a command of the next batch. Those commands are there as a whole,
 * and have `*units` units together. `there`: the lanes whose unit has the expected number. A
 * command of rows is none of them, nor is one behind it. */
__device__ uint32_t find_commands(Seen &seen, uint32_t there, uint32_t lane, uint32_t *units) {
    const uint32_t there_in_a_row = __ffs(~there) - 1;
    seen.units = gpushm::standby_units(seen.unit.argument);
    seen.begins =
        (seen.unit.tag & 1) != 0 && lane < there_in_a_row && seen.units <= there_in_a_row - lane;
    const uint32_t ends =
        __ballot_sync(kAllLanes, seen.begins && (seen.unit.argument & kStandbyEndsBatch) != 0);
    seen.begins = seen.begins && (ends & ((1u << lane) - 1)) == 0;
    const uint32_t rows =
        __ballot_sync(kAllLanes, seen.begins && (seen.unit.argument & kStandbyRows) != 0);
    seen.begins = seen.begins && (rows & ((2u << lane) - 1)) == 0;
    const uint32_t begins = __ballot_sync(kAllLanes, seen.begins);
    const uint32_t last = kLanes - 1 - __clz(begins);
    *units = begins == 0 ? 0 : last + __shfl_sync(kAllLanes, seen.units, last);
    return begins;
}

/** How long the kernel stays. The lane that reads the beat decides. Reading the clock of the
 * processor costs nothing, but it may run more slowly than the limits assume; reading the timer
 * takes as long as a poll. */
struct Patience {
    // About 9 and 70 us: doc/decisions/standby-device-code.md.
    static constexpr long long kCyclesBetweenTimers = 16'000;
    static constexpr long long kCyclesBetweenTimersAtWork = 128'000;

    uint64_t beat = 0;
    long long beat_seen;  // when it changed
    uint64_t end_of_life;
    long long timer_read;

    __device__ explicit Patience(const StandbyParameters &limits)
        : beat_seen(clock64()),
          end_of_life(nanoseconds() + limits.life_limit_ns),
          timer_read(beat_seen) {}

    __device__ bool is_at_end_of_life(long long now, bool has_work) {
        if (now - timer_read <= (has_work ? kCyclesBetweenTimersAtWork : kCyclesBetweenTimers)) {
            return false;
        }
        timer_read = now;
        return nanoseconds() > end_of_life;
    }

    /** Whether the kernel leaves. Work counts as a beat, and the timer is read less often then. */
    __device__ bool ends(const StandbyUnit &unit, const StandbyParameters &limits, bool has_work) {
        const long long now = clock64();
        if (unit.word != beat || has_work) {
            beat = unit.word;
            beat_seen = now;
        }
        return now - beat_seen > limits.beat_limit_cycles || unit.argument == limits.launch ||
               is_at_end_of_life(now, has_work);
    }
};

/** Where the copies of the first `units` go, for lane 0. Several commands count as copies to
 * anywhere: a vote on all of them would make the whole loop slower
 * (doc/decisions/standby-device-code.md). */
__device__ Reach reach_of(const StandbyUnit &first, uint32_t units) {
    return units == gpushm::standby_units(first.argument) && (first.argument & kStandbyOwnGpu) != 0
               ? Reach::own_gpu
               : Reach::anywhere;
}

enum class Work { none, little, batch };

/** Whether the only command that is there, a copy, uses bytes that were read ahead or reads others
 * ahead. `held`: the number of the command whose next source was read. */
struct Reading {
    bool is_held;
    Ahead ahead;

    __device__ Reading(const Seen &seen, uint32_t argument, uint32_t held) : ahead{} {
        const uint32_t which = __shfl_sync(kAllLanes, seen.unit.argument, 1);
        is_held = which != 0 && which == held;
        if ((argument & kStandbyReadAhead) != 0) {
            ahead = {__shfl_sync(kAllLanes, seen.unit.word, 2),
                     __shfl_sync(kAllLanes, seen.unit.argument, 2)};
        }
    }
    /** Neither concerns all warps. */
    __device__ bool is_plain() const { return !is_held && ahead.length == 0; }
};

/** Whether the first command is of rows, and is there as a whole. */
__device__ bool is_of_rows(const Seen &seen, uint32_t there) {
    constexpr uint32_t kUnits = (1u << kRowsUnits) - 1;
    const uint32_t argument = __shfl_sync(kAllLanes, seen.unit.argument, 0);
    return (argument & kStandbyRows) != 0 && (there & kUnits) == kUnits;
}

/** Finds out what there is to do, and serves inline payload. little: `*units` units are served once
 * the small copy in `copy` (length 0: none) is made. batch: copies for all warps are in `batch`, or
 * in `rows`, which has no row otherwise. `held` is that of Reading. */
__device__ Work find_work(Seen &seen, uint32_t there, uint32_t lane, uint32_t held, uint32_t *units,
                          Copy &copy, Batch &batch, Rows &rows) {
    if (is_of_rows(seen, there)) {
        rows.set(seen.unit, lane);
        *units = kRowsUnits;
        return Work::batch;
    }
    if (lane == 0) {
        rows.clear();
    }
    const uint32_t argument = __shfl_sync(kAllLanes, seen.unit.argument, 0);
    const bool is_one = is_one_command(there, argument, units);
    if (is_one && (argument & kStandbyInline) != 0) {
        const uint64_t destination = __shfl_sync(kAllLanes, seen.unit.word, 0);
        if (lane != 0 && lane < *units) {
            store_payload(seen.unit, lane - 1, destination, argument & kStandbyLength);
        }
        copy.length = 0;
        return Work::little;
    }
    if (is_one) {
        copy = copy_at(seen, 0);
        const Reading reading(seen, argument, held);
        if (is_small(copy) && reading.is_plain()) {
            return Work::little;
        }
        if (lane == 0) {
            list_copy(copy, 0, 0, batch);
            batch.copies = 1;
            batch.pieces = pieces_of(copy, piece_shift(copy));
            batch.is_held = reading.is_held;
            batch.ahead = reading.ahead;
        }
        return Work::batch;
    }
    const uint32_t begins = find_commands(seen, there, lane, units);
    if (*units == 0) {
        return Work::none;
    }
    if (is_little(seen, begins, *units, lane, copy)) {
        return Work::little;
    }
    list_copies(seen, lane, batch);
    return Work::batch;
}

/** Warp 0: waits for commands, and serves those that are quicker served alone, inline payload and
 * one small copy. Returns with copies for all warps in `batch`, or in `rows`, or with no unit when
 * the kernel is to leave. `next` is the first unit that is not served, `held` that of Reading. */
__device__ void fetch(const StandbyParameters &parameters, uint32_t &next, uint32_t held,
                      uint32_t lane, Patience &patience, Batch &batch, Rows &rows) {
    StandbyControl &control = *parameters.control;
    for (;;) {
        // One load for all lanes: a second one, of the beat alone, would double the time of a poll.
        const StandbyUnit *unit =
            lane < kStandbyWindow ? &control.units[(next + lane) % kStandbyUnits] : &control.beat;
        Seen seen;
        seen.unit = load_unit(unit);
        const bool expected =
            lane < kStandbyWindow && (seen.unit.tag >> 1) == ((next + lane) & ~0u >> 1);
        const uint32_t there = __ballot_sync(kAllLanes, expected);
        const bool ends = lane == kBeatLane && patience.ends(seen.unit, parameters, there != 0);
        uint32_t units = 0;
        Copy copy = {};
        Work work = Work::none;
        if (__any_sync(kAllLanes, ends)) {
            work = Work::batch;  // of no unit
        } else if (is_answer(seen, there)) {
            store_answer(control, copy_at(seen, 0), lane);
            next += 2;
            if (lane == 0) {
                store_relaxed(&control.done, next);
            }
        } else if (there != 0) {
            work = find_work(seen, there, lane, held, &units, copy, batch, rows);
        }
        if (work == Work::batch) {
            const Reach reach = reach_of(seen.unit, units);
            if (lane == 0) {
                batch.units = units;
                batch.reach = reach;
                batch.pieces = units == 0 ? 0 : batch.pieces;
            }
            return;
        }
        if (work == Work::little) {
            const Reach reach = reach_of(seen.unit, units);
            if (copy.length != 0) {
                copy_piece(copy, lane);
            }
            __syncwarp();
            next += units;
            if (lane == 0) {
                publish(&control.done, next, reach);
            }
        }
    }
}

// ---------------------------------------------------------------- blocks

/** All blocks and threads of the kernel. */
template <uint32_t kBlocks, uint32_t kThreads>
struct Shape {
    static constexpr uint32_t kWarps = kThreads / kLanes;

    /** Waits for all threads of all blocks. */
    static __device__ __forceinline__ void barrier() {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }

    /** Neighbouring pieces go to different blocks, whose processors move them at the same time. */
    static __device__ void copy_among_all(const Batch &batch, uint32_t warp, uint32_t lane) {
        copy_share(batch, warp * kBlocks + blockIdx.x, kBlocks * kWarps, lane);
    }

    /** The first block's part of a batch; when it returns, all is copied. Copies that the warps of
     * this block make in one go are not worth the time that it takes to tell the other blocks
     * (doc/decisions/standby-device-code.md). */
    static __device__ __forceinline__ void copy(const Batch &batch, uint32_t warp, uint32_t lane) {
        if constexpr (kBlocks > 1) {
            if (batch.pieces > kWarps + batch.copies) {
                barrier();
                copy_among_all(batch, warp, lane);
                barrier();
                return;
            }
        }
        copy_share(batch, warp, kWarps, lane);
        __syncthreads();
    }

    /** Tells the other blocks of a batch without units: they leave. */
    static __device__ void send_away() {
        if constexpr (kBlocks > 1) {
            barrier();
            barrier();
        }
    }

#ifdef GPUSHM_HAS_CLUSTERS
    /** A block that is not the first one; `batch` is its copy of the first block's. Each batch
     * takes two barriers. The first block writes it before the first barrier. Between the barriers
     * all blocks read it and copy. So the first block may write the next one behind the second
     * barrier. */
    static __device__ void help(Batch &batch, uint32_t warp, uint32_t lane) {
        constexpr uint32_t kWords = sizeof(Batch) / sizeof(uint32_t);
        static_assert(kWords * sizeof(uint32_t) == sizeof(Batch) && kWords <= kThreads,
                      "a word a thread");
        const auto *told = static_cast<const uint32_t *>(__cluster_map_shared_rank(&batch, 0));
        auto *own = reinterpret_cast<uint32_t *>(&batch);
        do {
            barrier();
            if (threadIdx.x < kWords) {
                own[threadIdx.x] = told[threadIdx.x];
            }
            __syncthreads();
            copy_among_all(batch, warp, lane);
            barrier();
        } while (batch.units != 0);
    }
#endif
};

/** The block that serves the commands. The others, if there are any, are in Shape::help(). */
template <uint32_t kBlocks, uint32_t kThreads>
__device__ __forceinline__ void serve(const StandbyParameters &parameters, Batch &batch, Held &held,
                                      Rows &rows) {
    using Blocks = Shape<kBlocks, kThreads>;
    const uint32_t warp = threadIdx.x / kLanes;
    const uint32_t lane = threadIdx.x % kLanes;
    StandbyControl &control = *parameters.control;
    Patience patience(parameters);
    if (threadIdx.x == 0) {
        store_release(&control.started, parameters.launch);
    }
    // For warp 0: the first unit that is not served, and the number of the command whose next
    // source is in `held`.
    uint32_t next = parameters.first;
    uint32_t reader = 0;
    for (;;) {
        if (warp == 0) {
            fetch(parameters, next, reader, lane, patience, batch, rows);
        }
        __syncthreads();
        if (batch.units == 0) {
            break;
        }
        if (rows.count() != 0) {
            copy_rows<kThreads>(rows);
            __syncthreads();
            next += kRowsUnits;
            if (threadIdx.x == 0) {
                publish(&control.done, next, batch.reach);
            }
            continue;
        }
        // Warp 0 writes the next batch while others read ahead. So only warp 0 uses this one behind
        // the barrier that ends the copy.
        const Ahead ahead = batch.ahead;
        reader = ahead.length != 0 ? next : reader;
        next += batch.units;
        if (batch.is_held != 0) {
            store_held<kThreads>(batch.copy[0], held);
            __syncthreads();
        } else {
            Blocks::copy(batch, warp, lane);
        }
        if (threadIdx.x == 0) {
            publish(&control.done, next, batch.reach);
        }
        if (warp != 0 && ahead.length != 0) {
            read_ahead<kThreads>(ahead, held);
        }
    }
    Blocks::send_away();
    if (threadIdx.x == 0) {
        store_release(&control.left, static_cast<uint64_t>(parameters.launch) << 32 | next);
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kStandbyThreads)
    gpushm_standby(StandbyParameters parameters) {
    __shared__ Batch batch;
    __shared__ Held held;
    __shared__ Rows rows;
    serve<1, kStandbyThreads>(parameters, batch, held, rows);
}

#ifdef GPUSHM_HAS_CLUSTERS
/** Two blocks would fit a processor, so that a block takes no more than half of the registers. */
extern "C" __global__ void __cluster_dims__(kStandbyClusterBlocks)
    __launch_bounds__(kStandbyClusterThreads, 2)
        gpushm_standby_cluster(StandbyParameters parameters) {
    __shared__ Batch batch;
    __shared__ Held held;
    __shared__ Rows rows;
    if (blockIdx.x == 0) {
        serve<kStandbyClusterBlocks, kStandbyClusterThreads>(parameters, batch, held, rows);
    } else {
        Shape<kStandbyClusterBlocks, kStandbyClusterThreads>::help(batch, threadIdx.x / kLanes,
                                                                   threadIdx.x % kLanes);
    }
}
#endif
