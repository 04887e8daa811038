// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <stdexcept>

namespace gpushm::perf {
namespace {

constexpr size_t kLargestSize = size_t{1} << 30;  // counts of MPI are int

template <typename Item, typename Parse>
std::vector<Item> parse_all(const Options &options, const char *key, Parse parse) {
    std::vector<Item> items;
    for (const std::string &text : options.list(key)) {
        items.push_back(parse(text));
    }
    if (items.empty()) {
        throw std::runtime_error(std::string("--") + key + ": at least one is needed");
    }
    return items;
}

/** The cells of a test in a situation. */
void add_cells(Test test, Situation situation, const std::vector<MemoryKind> &from,
               const std::vector<MemoryKind> &to, std::vector<Cell> *cells) {
    for (const MemoryKind source : from) {
        for (const MemoryKind destination : to) {
            Cell cell = {test, situation, source, destination};
            if (cell.is_placed()) {
                cell.from = cell.to = MemoryKind::managed;
            } else if (test == Test::barrier) {
                cell.from = cell.to = MemoryKind::host;
            }
            const bool is_new = std::find(cells->begin(), cells->end(), cell) == cells->end();
            if (cell.has_meaning() && is_new) {
                cells->push_back(cell);
            }
        }
    }
}

}  // namespace

std::map<std::string, std::string> Plan::defaults() {
    return {{"tests", "latency,bw,bibw"},
            {"situations", "normal"},
            {"from", "host,device"},
            {"to", "host,device"},
            {"sizes", "1:4m"},
            {"seconds", "0.05"},
            {"piece", "256k"},
            {"devices", ""},
            {"json", ""}};
}

Plan::Plan(const Options &options, bool collectives)
    : sizes(options.sizes("sizes")),
      effort{options.number("seconds")},
      piece_bytes(options.sizes("piece").front()),
      devices(options.integers("devices")),
      json_file(options.text("json")) {
    const auto tests = parse_all<Test>(options, "tests", parse_test);
    const auto situations = parse_all<Situation>(options, "situations", parse_situation);
    const auto from = parse_all<MemoryKind>(options, "from", parse_memory_kind);
    const auto to = parse_all<MemoryKind>(options, "to", parse_memory_kind);
    for (const Test test : tests) {
        if (!collectives && test >= Test::barrier) {
            throw std::runtime_error(name_of(test) +
                                     ": only gpushm-perf-mpi has this test, and it needs MPI");
        }
        for (const Situation situation : situations) {
            add_cells(test, situation, from, to, &cells);
        }
    }
    if (cells.empty()) {
        throw std::runtime_error(
            "these situations do not go with these tests and kinds of memory; see the manual page");
    }
    std::sort(sizes.begin(), sizes.end());
    if (sizes.back() > kLargestSize) {
        throw std::runtime_error("--sizes=" + options.text("sizes") + ": messages have up to 1g");
    }
    for (const Cell &cell : cells) {
        if (sizes_of(cell).empty()) {
            throw std::runtime_error("--sizes=" + options.text("sizes") + ": " +
                                     name_of(cell.test) +
                                     " adds floats, so it needs multiples of 4");
        }
    }
    if (!(effort.seconds >= 0 && effort.seconds <= 3600)) {
        throw std::runtime_error("--seconds=" + options.text("seconds") +
                                 ": that is no valid value");
    }
}

std::vector<size_t> Plan::sizes_of(const Cell &cell) const {
    if (cell.test == Test::barrier) {
        return {0};
    }
    std::vector<size_t> measured;
    std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(measured),
                 [&](size_t size) { return !cell.is_reduction() || size % sizeof(float) == 0; });
    return measured;
}

size_t Plan::row_count() const {
    return std::accumulate(
        cells.begin(), cells.end(), size_t{0},
        [this](size_t sum, const Cell &cell) { return sum + sizes_of(cell).size(); });
}

bool Plan::leave_out_gpus() {
    cells.erase(std::remove_if(cells.begin(), cells.end(),
                               [](const Cell &cell) { return cell.needs_gpu(); }),
                cells.end());
    return !cells.empty();
}

bool Plan::needs_gpu() const {
    return std::any_of(cells.begin(), cells.end(),
                       [](const Cell &cell) { return cell.needs_gpu(); });
}

}  // namespace gpushm::perf
