// SPDX-License-Identifier: BSD-3-Clause
// What a CPU and the standby kernel share: a block of page-locked host memory, StandbyControl.
//
// The kernel (standby_kernel.cu) is one block of threads, or a cluster of blocks. It stays on the
// GPU for a while, polls `units` and makes the copies that they describe. The CPU's side is
// standby_queue.hpp and standby_kernel.hpp. Several threads of the process may be the CPU's side,
// one at a time; nobody else touches the control. Only the first block of a cluster touches it, and
// tells the others by barriers of the cluster.
//
//   CPU                                              GPU
//   launches the kernel ------------------------->   started = launch
//   writes the units of a command  -------------->   one warp polls the next 31 units and the beat
//                                                    with one load; the kernel copies all complete
//                                                    commands together, as a batch
//   polls done  <---------------------------------   done = the first unit that is not served
//   beats, while it waits  ---------------------->   leaves when the beat stops, when its life ends
//   sees what was not served  <-------------------   or when it is told to: left = {launch, unit}
//
// A command takes two units or more:
//
//   copy     {destination, length}  {source, which}
//   inline   {destination, length}  {12 bytes of payload}  ...
//   answer   {number, length}       {source, 0}
//   copy, and read ahead
//            {destination, length}  {source, which}  {next source, next length}
//   rows     {destination, length of a row}  {source, rows}  {destination pitch, source pitch}
//
// A kernel that reads ahead copies the bytes at the next source into memory of its own, behind the
// copy and while the CPU learns that the copy has ended. `which` names such a command by the number
// of its first unit: the copy has the source that this command has read ahead, and is no longer. A
// kernel that still has the bytes takes them from its memory, any other kernel from the source. So
// the source must not change between the two commands. 0 is no command's number.
//
// Rows lie at equal distances, the pitches, which are at least the length of a row and below 2^31.
// All rows together have at most kStandbyMostRowBytes. The kernel serves the command by itself, not
// together with those around it. Nothing of it is read ahead.
//
// An answer goes to `answer`. The CPU takes it from there to its destination in host memory. Its
// source and its length are multiples of 4.
//
// Units are numbered 0, 1, 2, ... since the process began; unit n lies at n modulo kStandbyUnits.
#pragma once

#include <cstdint>

namespace gpushm {

/** Sixteen bytes that are written with one store and read with one load. The hardware of both sides
 * keeps an aligned unit in one piece (a PCIe read of a cache line; the Intel SDM volume 3, 9.1.1,
 * for stores of 16 bytes on processors with AVX). So a unit with the expected tag is a whole one;
 * litmus_test.cpp tries it. Written by the CPU, read by the GPU (acquire).
 *
 * `tag` is the unit's number << 1, plus 1 for the first unit of a command. A reader that finds
 * another number than the expected one, such as that of an older round, takes the unit as "not
 * there yet". The CPU writes unit n only when `done` has passed n - kStandbyUnits. A CPU that dies
 * in the middle of a command leaves it incomplete, and the kernel does not serve it. */
struct alignas(16) StandbyUnit {
    uint64_t word;      // first: destination; second and third: source; inline: 8 bytes of payload;
                        // third of rows: destination pitch
    uint32_t argument;  // first: length in bytes, and flags; second: which; third: length; inline:
                        // 4 more bytes; of rows: second: rows; third: source pitch
    uint32_t tag;
};

// Flags in the `argument` of the first unit. kStandbyOwnGpu: the destination is memory of the
// kernel's own GPU. kStandbyReadAhead: of a copy only. kStandbyEndsBatch: the kernel begins later
// commands only when `done` has passed this one. kStandbyRows: with neither kStandbyInline nor
// kStandbyAnswer nor kStandbyReadAhead.
constexpr uint32_t kStandbyInline = 1u << 31;
constexpr uint32_t kStandbyAnswer = 1u << 30;
constexpr uint32_t kStandbyOwnGpu = 1u << 29;
constexpr uint32_t kStandbyReadAhead = 1u << 28;
constexpr uint32_t kStandbyEndsBatch = 1u << 27;
constexpr uint32_t kStandbyRows = 1u << 26;
constexpr uint32_t kStandbyLength = kStandbyRows - 1;  // the rest

constexpr uint32_t kStandbyUnits = 512;
/** The units that the kernel polls with one load; no command has more. */
constexpr uint32_t kStandbyWindow = 31;

/** Bytes of payload that ride in one unit. */
constexpr uint32_t kStandbyUnitPayload = 12;
constexpr uint32_t kStandbyMostInline = 8 * kStandbyUnitPayload;

/** Units of an answer. */
constexpr uint32_t kStandbyAnswerUnits = 32;
constexpr uint32_t kStandbyMostAnswer = kStandbyAnswerUnits * kStandbyUnitPayload;

/** The most bytes that are read ahead. Each block has so much shared memory. */
constexpr uint32_t kStandbyMostAhead = 16u << 10;

/** The most bytes of all rows of a command, and the largest pitch. */
constexpr uint32_t kStandbyMostRowBytes = 32u << 10;
constexpr uint32_t kStandbyMostPitch = (1u << 31) - 1;

/** How many units a command takes; `argument` is that of its first unit. */
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr uint32_t
    standby_units(uint32_t argument) {
    return (argument & kStandbyInline) == 0
               ? ((argument & (kStandbyReadAhead | kStandbyRows)) == 0 ? 2 : 3)
               : 1 + ((argument & kStandbyLength) + kStandbyUnitPayload - 1) / kStandbyUnitPayload;
}

struct StandbyControl {
    StandbyUnit units[kStandbyUnits];

    /** `word` changes as long as a thread of the process waits for messages or copies. `argument`
     * is the number of a launch that is to leave at once. The CPU writes each of them on its own
     * (relaxed: they order nothing), the kernel reads them together with the units. If the process
     * dies, they stay as they are, and the kernel leaves. */
    alignas(128) StandbyUnit beat;

    /** All units below it are served: the bytes that their commands wrote are visible to the CPU,
     * to other processes and to kernels that are launched afterwards. Written by the kernel
     * (store-release at system scope, behind the copies and a barrier of all threads that copied;
     * standby_kernel.cu says how if all were kStandbyOwnGpu), read by the CPU (acquire). Behind an
     * answer it is written relaxed, and says nothing of the answer. The CPU sets it before a
     * launch, when no kernel is there. If the kernel is killed, it stays. */
    alignas(128) uint32_t done;

    /** The launch that runs, or ran last. Written by the kernel (release) before anything else,
     * read by the CPU, which gives commands only to a kernel that has written it: a kernel may
     * never start on a GPU that is full. */
    alignas(128) uint32_t started;

    /** launch << 32 | the first unit that was not served: the kernel of that launch touches nothing
     * any more. Written by the kernel (release) as its last action, read by the CPU (acquire),
     * which copies the rest by other means. A kernel that is killed does not write it; the state of
     * its stream tells that. */
    alignas(8) uint64_t left;

    /** The bytes of an answer. Each unit has 12 of them in `word` and `argument`, and the answer's
     * number in `tag`. Written by the kernel (relaxed stores of 16 bytes, in any order), read by
     * the CPU with loads of 16 bytes. A unit with the expected number is a whole one, so nothing
     * waits until the bus has taken the stores (doc/decisions/standby-device-code.md). One answer
     * at a time: the CPU asks for one when all earlier commands have ended. No number is used
     * twice: before the numbers begin again the CPU clears all units. A kernel writes them before
     * `left`. If it is killed, some are missing, and the state of its stream tells that. */
    alignas(128) StandbyUnit answer[kStandbyAnswerUnits];
};

/** Name of the kernel for any GPU; its grid is one block of kStandbyThreads. */
constexpr const char *kStandbyKernelName = "gpushm_standby";
constexpr uint32_t kStandbyThreads = 512;

/** Name of the kernel for GPUs that have thread block clusters (compute capability 9.0 and above;
 * the code of others lacks it); its grid is one cluster of kStandbyClusterBlocks, the most that
 * every such GPU can have. */
constexpr const char *kStandbyClusterName = "gpushm_standby_cluster";
constexpr uint32_t kStandbyClusterBlocks = 8;
constexpr uint32_t kStandbyClusterThreads = 256;  // of a block

/** The parameters of both. */
struct StandbyParameters {
    StandbyControl *control;  // as the GPU addresses it
    uint32_t launch;          // number of this launch, not 0
    uint32_t first;           // the unit to begin with
    // It leaves after so many cycles of the GPU's clock without a change of the beat,
    uint32_t beat_limit_cycles;
    // and after so long in any case, as soon as it has served the commands of a batch.
    uint32_t life_limit_ns;
};

}  // namespace gpushm
