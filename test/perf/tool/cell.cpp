// SPDX-License-Identifier: BSD-3-Clause
#include "cell.hpp"

#include <stdexcept>

namespace gpushm::perf {
namespace {

struct TestName {
    const char *name;
    const char *title;
};

// In the order of the enumerations.
constexpr TestName kTests[] = {
    {"latency", "Latency"},
    {"bw", "Bandwidth"},
    {"bibw", "Bi-Directional Bandwidth"},
    {"mbw_mr", "Multiple Bandwidth / Message Rate"},
    {"barrier", "Barrier Latency"},
    {"bcast", "Broadcast Latency"},
    {"reduce", "Reduce Latency"},
    {"allreduce", "Allreduce Latency"},
    {"reduce_scatter", "Reduce-Scatter Latency"},
    {"gather", "Gather Latency"},
    {"scatter", "Scatter Latency"},
    {"allgather", "Allgather Latency"},
    {"alltoall", "All-to-All Latency"},
};

constexpr const char *kSituations[] = {
    "normal", "one-gpu",          "unmapped", "busy",  "late",  "cold", "rotating",
    "staged", "staged-pipelined", "MH-MH",    "MD-MH", "MH-MD", "MD-MD"};

}  // namespace

Test parse_test(const std::string &name) {
    std::string all;
    for (const TestName &known : kTests) {
        if (name == known.name) {
            return static_cast<Test>(&known - kTests);
        }
        all += std::string(all.empty() ? "" : " ") + known.name;
    }
    throw std::runtime_error(name + ": the tests are " + all);
}

Situation parse_situation(const std::string &name) {
    std::string all;
    for (const char *const &known : kSituations) {
        if (name == known) {
            return static_cast<Situation>(&known - kSituations);
        }
        all += std::string(all.empty() ? "" : " ") + known;
    }
    throw std::runtime_error(name + ": the situations are " + all);
}

std::string name_of(Test test) {
    return kTests[static_cast<size_t>(test)].name;
}

std::string name_of(Situation situation) {
    return kSituations[static_cast<size_t>(situation)];
}

std::string title_of(Test test) {
    return kTests[static_cast<size_t>(test)].title;
}

bool Cell::has_meaning() const {
    const bool is_pair = !is_collective();
    switch (situation) {
        case Situation::normal:
            return true;
        case Situation::one_gpu:
        case Situation::busy:
            return needs_gpu();
        case Situation::unmapped:
            return from == MemoryKind::device || to == MemoryKind::device;
        case Situation::late:
        case Situation::cold:
            return test == Test::latency;
        case Situation::rotating:
            return is_pair;
        case Situation::staged:
        case Situation::staged_pipelined:
            return is_pair && (is_device_memory(from) || is_device_memory(to));
        default:
            return test == Test::latency || test == Test::bw || test == Test::bibw ||
                   test == Test::bcast;
    }
}

}  // namespace gpushm::perf
