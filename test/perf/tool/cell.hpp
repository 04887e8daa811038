// SPDX-License-Identifier: BSD-3-Clause
// What gpushm-perf measures: a test, between two kinds of memory, in a situation.
#pragma once

#include "../memory_kind.hpp"

#include <string>
#include <vector>

namespace gpushm::perf {

enum class Test {
    latency,
    bw,
    bibw,
    mbw_mr,
    barrier,
    bcast,
    reduce,
    allreduce,
    reduce_scatter,
    gather,
    scatter,
    allgather,
    alltoall
};

/** `one_gpu`: all ranks use the first GPU. `unmapped`: device memory that no other process can map.
 * `busy`: kernels of the program run all the time. `late`: the message is there before the receive
 * is called. `cold`: both buffers are new for each message. `rotating`: each message uses the next
 * one of several buffers. `staged`: the program copies to page-locked memory and back, a message at
 * a time (Ji et al., listing 1); `staged_pipelined`: in pieces, while others are under way.
 * `mh_mh` to `md_md`: managed memory that the CPU (H) or the GPU (D) works on, at the sender and
 * the receiver (OMB-UM). */
enum class Situation {
    normal,
    one_gpu,
    unmapped,
    busy,
    late,
    cold,
    rotating,
    staged,
    staged_pipelined,
    mh_mh,
    md_mh,
    mh_md,
    md_md
};

/** Throw std::runtime_error for another name. */
Test parse_test(const std::string &name);
Situation parse_situation(const std::string &name);

std::string name_of(Test test);
std::string name_of(Situation situation);
/** As in the head of a table: "Latency", "Allreduce". */
std::string title_of(Test test);

struct Cell {
    Test test;
    Situation situation;
    MemoryKind from;
    MemoryKind to;

    bool is_collective() const { return test >= Test::barrier; }
    bool is_reduction() const { return test >= Test::reduce && test <= Test::reduce_scatter; }
    /** Whether it measures the time of a message or an operation, not how much there is of them. */
    bool measures_time() const { return test == Test::latency || is_collective(); }
    bool is_staged() const {
        return situation == Situation::staged || situation == Situation::staged_pipelined;
    }
    /** Whether it is one of the placements of managed memory. */
    bool is_placed() const { return situation >= Situation::mh_mh; }
    bool sender_on_gpu() const {
        return situation == Situation::md_mh || situation == Situation::md_md;
    }
    bool receiver_on_gpu() const {
        return situation == Situation::mh_md || situation == Situation::md_md;
    }
    bool needs_gpu() const { return from != MemoryKind::host || to != MemoryKind::host; }

    /** Whether the situation is one of this test and of these kinds of memory. */
    bool has_meaning() const;

    bool operator==(const Cell &other) const {
        return test == other.test && situation == other.situation && from == other.from &&
               to == other.to;
    }
};

}  // namespace gpushm::perf
