// SPDX-License-Identifier: BSD-3-Clause
// Collective operations that reduce: all predefined operations and types by MPI_Reduce_local and
// MPI_Allreduce, some of them and operations of the program by the others.
#include "operations_collective_call.hpp"
#include "operations_registry.hpp"
#include "operations_values.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace gpushm::mpi_test::operations {
namespace {

struct Setting {
    Reduction reduction;
    Form form;
    bool in_place;
    bool large;
};

std::vector<int> counts(const Trial &trial, const Setting &setting) {
    std::vector<int> list{1, 7, 1000};
    if (trial.quick()) {
        list = {7, 1000};
    }
    if (setting.large) {
        list.push_back(100000);
    }
    return list;
}

// The values of this rank, in a send buffer or at the place where the result will be.
struct Operands {
    Operands(Exchange &exchange, const Group &group, const Setting &setting, int count)
        : own(setting.reduction.values(group.rank, count)) {
        if (!setting.in_place) {
            send = exchange.blank(Role::source, *setting.reduction.layout, count);
            send.fill(0, own);
        }
    }

    Bytes own;
    Items send;
};

// Items [0, count) of the result's buffer will be `stream`; in place, they are `own` before.
void expect_result(const Items &result, const Setting &setting, const Bytes &own,
                   const Bytes &stream, int count) {
    if (setting.in_place) {
        result.fill(0, own);
        result.change(0, stream);
    } else {
        result.expect(0, stream);
    }
    result.ignore_padding(0, count);
}

const void *send_address(const Operands &operands, const Setting &setting) {
    return setting.in_place ? MPI_IN_PLACE : operands.send.address();
}

// The same, of which each item lies so many bytes behind its place.
Reduction displaced(Reduction reduction, ptrdiff_t displacement) {
    std::vector<Block> blocks = reduction.layout->blocks();
    for (Block &block : blocks) {
        block.offset += displacement;
    }
    reduction.layout = std::make_shared<Layout>(reduction.layout->name(), reduction.layout->type(),
                                                blocks, reduction.layout->bounds());
    return reduction;
}

// Of no other rank: right = left op right. The buffers begin `displacement` bytes behind a place
// that fits any type.
void test_reduce_local(Trial &trial, const Setting &setting, ptrdiff_t displacement = 0) {
    const Reduction reduction = displaced(setting.reduction, displacement);
    const auto begin = [displacement](const Items &items) {
        return static_cast<char *>(items.address()) + displacement;
    };
    for (int count : counts(trial, setting)) {
        Exchange exchange(trial, text("count %d", count));
        const Items left = exchange.blank(Role::source, *reduction.layout, count);
        const Items right = exchange.destination(*reduction.layout, count);
        left.fill(0, reduction.values(0, count));
        right.fill(0, reduction.values(1, count));
        right.change(0, reduce(reduction, 2, count));
        right.ignore_padding(0, count);
        exchange.run([&] {
            exchange.require(MPI_Reduce_local(begin(left), begin(right), count,
                                              reduction.layout->type(), reduction.op),
                             "MPI_Reduce_local");
        });
    }
}

void test_reduce(Trial &trial, const Setting &setting) {
    const auto reduce_to = GPUSHM_TEST_COLLECTIVE(Reduce, reduce);
    const Reduction &reduction = setting.reduction;
    const Group &group = trial.group();
    for (int count : counts(trial, setting)) {
        for (int root : trial.roots()) {
            Exchange exchange(trial, text("count %d, root %d", count, root));
            Setting own_setting = setting;
            own_setting.in_place = setting.in_place && group.rank == root;
            const Operands operands(exchange, group, own_setting, count);
            Items result;
            if (group.rank == root) {
                result = exchange.destination(*reduction.layout, count);
                expect_result(result, own_setting, operands.own,
                              reduce(reduction, group.size, count), count);
            }
            reduce_to.run(exchange, setting.form, send_address(operands, own_setting),
                          result.address(), count, reduction.layout->type(), reduction.op, root,
                          group.comm);
        }
    }
}

void test_allreduce(Trial &trial, const Setting &setting) {
    const auto allreduce = GPUSHM_TEST_COLLECTIVE(Allreduce, allreduce);
    const Reduction &reduction = setting.reduction;
    const Group &group = trial.group();
    for (int count : counts(trial, setting)) {
        Exchange exchange(trial, text("count %d", count));
        const Operands operands(exchange, group, setting, count);
        const Items result = exchange.destination(*reduction.layout, count);
        expect_result(result, setting, operands.own, reduce(reduction, group.size, count), count);
        allreduce.run(exchange, setting.form, send_address(operands, setting), result.address(),
                      count, reduction.layout->type(), reduction.op, group.comm);
    }
}

// Part [first, first + count) of a stream of `total` items.
Bytes part_of(const Bytes &stream, int total, int first, int count) {
    const auto item = static_cast<ptrdiff_t>(stream.size()) / total;
    return Bytes(stream.begin() + first * item, stream.begin() + (first + count) * item);
}

// Each rank gets items [first, first + count) of the result.
template <typename Call>
void test_scattered(Trial &trial, const Setting &setting, Exchange &exchange, int total, int first,
                    int count, Call &&call) {
    const Reduction &reduction = setting.reduction;
    const Operands operands(exchange, trial.group(), setting, total);
    const Bytes part = part_of(reduce(reduction, trial.group().size, total), total, first, count);
    Items result;
    if (setting.in_place) {
        // The operands of all ranks are where the result of this rank goes; what is in the rest
        // after the operation, MPI does not say.
        result = exchange.destination(*reduction.layout, total);
        result.fill(0, operands.own);
        result.change(0, part);
        result.ignore_items(count, total - count);
    } else {
        result = exchange.destination(*reduction.layout, count);
        result.expect(0, part);
    }
    result.ignore_padding(0, count);
    call(send_address(operands, setting), result.address());
}

void test_reduce_scatter(Trial &trial, const Setting &setting) {
    const auto reduce_scatter = GPUSHM_TEST_COLLECTIVE(Reduce_scatter, reduce_scatter);
    const Group &group = trial.group();
    for (int count : counts(trial, setting)) {
        Exchange exchange(trial, text("count %d", count));
        std::vector<int> lengths;
        int total = 0;
        int first = 0;
        for (int rank = 0; rank < group.size; ++rank) {
            first = rank == group.rank ? total : first;
            // One rank in three gets nothing.
            lengths.push_back(rank % 3 == 1 ? 0 : count + rank);
            total += lengths.back();
        }
        const int own = lengths[static_cast<size_t>(group.rank)];
        test_scattered(trial, setting, exchange, total, first, own,
                       [&](const void *send, void *receive) {
                           reduce_scatter.run(exchange, setting.form, send, receive, lengths.data(),
                                              setting.reduction.layout->type(),
                                              setting.reduction.op, group.comm);
                       });
    }
}

void test_reduce_scatter_block(Trial &trial, const Setting &setting) {
    const auto reduce_scatter_block =
        GPUSHM_TEST_COLLECTIVE(Reduce_scatter_block, reduce_scatter_block);
    const Group &group = trial.group();
    for (int count : counts(trial, setting)) {
        Exchange exchange(trial, text("count %d", count));
        test_scattered(trial, setting, exchange, count * group.size, count * group.rank, count,
                       [&](const void *send, void *receive) {
                           reduce_scatter_block.run(exchange, setting.form, send, receive, count,
                                                    setting.reduction.layout->type(),
                                                    setting.reduction.op, group.comm);
                       });
    }
}

void test_scan(Trial &trial, const Setting &setting) {
    const auto scan = GPUSHM_TEST_COLLECTIVE(Scan, scan);
    const Reduction &reduction = setting.reduction;
    const Group &group = trial.group();
    for (int count : counts(trial, setting)) {
        Exchange exchange(trial, text("count %d", count));
        const Operands operands(exchange, group, setting, count);
        const Items result = exchange.destination(*reduction.layout, count);
        expect_result(result, setting, operands.own, reduce(reduction, group.rank + 1, count),
                      count);
        scan.run(exchange, setting.form, send_address(operands, setting), result.address(), count,
                 reduction.layout->type(), reduction.op, group.comm);
    }
}

void test_exscan(Trial &trial, const Setting &setting) {
    const auto exscan = GPUSHM_TEST_COLLECTIVE(Exscan, exscan);
    const Reduction &reduction = setting.reduction;
    const Group &group = trial.group();
    for (int count : counts(trial, setting)) {
        Exchange exchange(trial, text("count %d", count));
        const Operands operands(exchange, group, setting, count);
        const Items result = exchange.destination(*reduction.layout, count);
        if (group.rank == 0) {
            // What the first rank gets is undefined.
            result.fill(0, operands.own);
            result.ignore_items(0, count);
        } else {
            expect_result(result, setting, operands.own, reduce(reduction, group.rank, count),
                          count);
        }
        exscan.run(exchange, setting.form, send_address(operands, setting), result.address(), count,
                   reduction.layout->type(), reduction.op, group.comm);
    }
}

using Test = void (*)(Trial &, const Setting &);

struct Entry {
    const char *name;
    Test test;
};

constexpr Entry kEntries[] = {
    {"Reduce", test_reduce},
    {"Allreduce", test_allreduce},
    {"Reduce_scatter", test_reduce_scatter},
    {"Reduce_scatter_block", test_reduce_scatter_block},
    {"Scan", test_scan},
    {"Exscan", test_exscan},
};

void add_entry(Registry &registry, const Entry &entry, Form form, bool in_place) {
    std::vector<Reduction> reductions = user_reductions();
    reductions.push_back(sum_of_ints());
    reductions.push_back(maxloc_of_doubles());
    const std::string name = name_of(entry.name, form) + (in_place ? " in place" : "");
    for (const Reduction &reduction : reductions) {
        const bool is_sum = reduction.op == MPI_SUM;
        const Setting setting{reduction, form, in_place, is_sum && form == Form::blocking};
        const auto run = [setting, test = entry.test](Trial &trial) { test(trial, setting); };
        registry.add(name + ", " + reduction.name, run);
        if (is_sum) {
            registry.add(name + " on MPI_COMM_SELF, " + reduction.name, registry.self(), run);
        }
    }
}

}  // namespace

void add_reductions(Registry &registry) {
    for (const Entry &entry : kEntries) {
        for (Form form : forms()) {
            add_entry(registry, entry, form, false);
            add_entry(registry, entry, form, true);
        }
    }
    for (const Reduction &reduction : predefined_reductions()) {
        const Setting setting{reduction, Form::blocking, false, false};
        registry.add("Reduce_local, " + reduction.name,
                     [setting](Trial &trial) { test_reduce_local(trial, setting); });
        registry.add("Allreduce, all types, " + reduction.name,
                     [setting](Trial &trial) { test_allreduce(trial, setting); });
    }
    // Which no kernel can read.
    const Setting odd{sum_of_ints(), Form::blocking, false, true};
    registry.add("Reduce_local, odd addresses",
                 [odd](Trial &trial) { test_reduce_local(trial, odd, 1); });
    for (const Reduction &reduction : user_reductions()) {
        const Setting setting{reduction, Form::blocking, false, false};
        registry.add("Reduce_local, " + reduction.name,
                     [setting](Trial &trial) { test_reduce_local(trial, setting); });
    }
}

}  // namespace gpushm::mpi_test::operations
