// SPDX-License-Identifier: BSD-3-Clause
#include "step_cell.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpushm::perf {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

std::string text_of(size_t bytes) {
    if (bytes >= kMiB) {
        return std::to_string(bytes / kMiB) + "M";
    }
    return bytes >= kKiB ? std::to_string(bytes / kKiB) + "K" : std::to_string(bytes);
}

const char *text_of(Wait wait) {
    switch (wait) {
        case Wait::context:
            return "context";
        case Wait::stream:
            return "stream";
        case Wait::event:
            return "event";
        case Wait::query:
            return "query";
        default:
            return "overlap";
    }
}

/** A size behind each wait. */
void add_waits(std::vector<StepCell> *cells) {
    for (const Wait wait : {Wait::context, Wait::stream}) {
        for (const size_t bytes : {size_t{512}, 4 * kKiB, 64 * kKiB, kMiB}) {
            StepCell cell;
            cell.name = std::string("wait-") + text_of(wait) + "-" + text_of(bytes);
            cell.wait = wait;
            cell.bytes = bytes;
            cells->push_back(cell);
        }
    }
    for (const Wait wait : {Wait::event, Wait::query}) {
        StepCell cell;
        cell.name = std::string("wait-") + text_of(wait) + "-4K";
        cell.wait = wait;
        cells->push_back(cell);
    }
}

void add_kernels(std::vector<StepCell> *cells) {
    for (const Wait wait : {Wait::context, Wait::stream, Wait::overlap}) {
        for (const int kernel_us : {5, 100, 500}) {
            StepCell cell;
            cell.name = "kernel-" + std::to_string(kernel_us) + "-" + text_of(wait);
            cell.kernel_us = kernel_us;
            cell.wait = wait;
            cell.bytes = wait == Wait::overlap ? 16 * kKiB : 4 * kKiB;
            cells->push_back(cell);
        }
    }
}

void add_neighbours(std::vector<StepCell> *cells) {
    const auto add = [cells](const char *style, Exchange exchange, unsigned neighbours,
                             size_t bytes) {
        StepCell cell;
        cell.name = std::string(style) + "-" + std::to_string(neighbours) + "x" + text_of(bytes);
        cell.exchange = exchange;
        cell.neighbours = neighbours;
        cell.bytes = bytes;
        cells->push_back(cell);
    };
    add("isend", Exchange::isend, 2, 4 * kKiB);
    add("isend", Exchange::isend, 4, 4 * kKiB);
    add("isend", Exchange::isend, 8, 4 * kKiB);
    add("isend", Exchange::isend, 8, 512);
    add("isend", Exchange::isend, 4, 64 * kKiB);
    add("isend", Exchange::isend, 2, kMiB);
    add("persistent", Exchange::persistent, 4, 4 * kKiB);
    add("persistent", Exchange::persistent, 2, 64 * kKiB);
}

void add_own_copies(std::vector<StepCell> *cells) {
    const auto add = [cells](const char *what, OwnCopies copies, unsigned count, Wait wait) {
        StepCell cell;
        cell.name = std::string(what) + "-" + std::to_string(count) + "-" + text_of(wait);
        cell.kernel_us = 6;
        cell.wait = wait;
        cell.own_copies = copies;
        cell.own_copy_count = count;
        cells->push_back(cell);
    };
    for (const Wait wait : {Wait::context, Wait::stream}) {
        add("rows", OwnCopies::rows, 2, wait);
        add("rows", OwnCopies::rows, 4, wait);
    }
    add("memsets", OwnCopies::memsets, 4, Wait::context);
    add("copies", OwnCopies::large, 2, Wait::context);
}

void add_reductions(std::vector<StepCell> *cells) {
    for (const unsigned neighbours : {0u, 1u}) {
        for (const Wait wait : {Wait::context, Wait::stream}) {
            StepCell cell;
            cell.name =
                std::string(neighbours != 0 ? "allreduce-4K-" : "allreduce-") + text_of(wait);
            cell.neighbours = neighbours;
            cell.wait = wait;
            cell.reduces = true;
            cells->push_back(cell);
        }
    }
}

void add_passes(std::vector<StepCell> *cells) {
    const auto add = [cells](size_t buffer_bytes, size_t bytes, unsigned steps, Wait wait) {
        StepCell cell;
        cell.name = "pass-" + text_of(buffer_bytes) + "-" + text_of(bytes) + "x" +
                    std::to_string(steps) + "-" + text_of(wait);
        cell.kernel_us = 6;
        cell.wait = wait;
        cell.bytes = bytes;
        cell.pass_steps = steps;
        cell.buffer_bytes = buffer_bytes;
        cells->push_back(cell);
    };
    add(64 * kKiB, 4 * kKiB, 100, Wait::context);
    add(2 * kMiB, 4 * kKiB, 1, Wait::context);
    add(2 * kMiB, 4 * kKiB, 10, Wait::context);
    add(2 * kMiB, 4 * kKiB, 100, Wait::context);
    add(2 * kMiB, 4 * kKiB, 1000, Wait::context);
    add(2 * kMiB, 4 * kKiB, 1000, Wait::stream);
    add(2 * kMiB, kMiB, 100, Wait::context);
    add(64 * kMiB, 64 * kKiB, 100, Wait::context);
    add(64 * kMiB, 32 * kMiB, 10, Wait::context);
}

std::vector<StepCell> make_cells() {
    std::vector<StepCell> cells;
    add_waits(&cells);
    add_kernels(&cells);
    add_neighbours(&cells);
    add_own_copies(&cells);
    add_reductions(&cells);
    add_passes(&cells);
    return cells;
}

}  // namespace

const std::vector<StepCell> &step_cells() {
    static const std::vector<StepCell> cells = make_cells();
    return cells;
}

std::vector<StepCell> step_cells_named(const std::vector<std::string> &prefixes) {
    std::vector<StepCell> chosen;
    std::vector<bool> used(prefixes.size(), false);
    for (const StepCell &cell : step_cells()) {
        bool wanted = prefixes.empty();
        for (size_t i = 0; i < prefixes.size(); ++i) {
            if (cell.name.compare(0, prefixes[i].size(), prefixes[i]) == 0) {
                wanted = used[i] = true;
            }
        }
        if (wanted) {
            chosen.push_back(cell);
        }
    }
    const auto unknown = std::find(used.begin(), used.end(), false);
    if (unknown != used.end()) {
        throw std::runtime_error(prefixes[static_cast<size_t>(unknown - used.begin())] +
                                 ": no cell has a name that begins so");
    }
    return chosen;
}

}  // namespace gpushm::perf
