// SPDX-License-Identifier: BSD-3-Clause
// MPI_Accumulate and its kin: operations on the window of the right neighbour.
#include "operations_mpi_version.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"
#include "operations_values.hpp"
#include "operations_window.hpp"

#include <algorithm>

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kFront = 32;  // bytes of the window in front of what is accessed

struct Setting {
    Reduction reduction;
    Flavor flavor;
    Epoch epoch;
    bool with_request;
};

Reduction replace(Reduction reduction) {
    reduction.name = "MPI_REPLACE of " + reduction.layout->name();
    reduction.op = MPI_REPLACE;
    reduction.combine = [](const Bytes &left, Bytes &right) { right = left; };
    return reduction;
}

Reduction keep(Reduction reduction) {
    reduction.name = "MPI_NO_OP of " + reduction.layout->name();
    reduction.op = MPI_NO_OP;
    reduction.combine = [](const Bytes &, Bytes &) {};
    return reduction;
}

// A stream of a vector of ints is one of ints.
Reduction of_vectors(Reduction reduction) {
    const auto ints = static_cast<int>(make_vector()->packed_size() / sizeof(int));
    reduction.name = "MPI_SUM of vector";
    reduction.layout = make_vector();
    reduction.values = [values = reduction.values, ints](int rank, int count) {
        return values(rank, count * ints);
    };
    return reduction;
}

// The predefined reductions of these names.
std::vector<Reduction> select(const std::vector<std::string> &names) {
    std::vector<Reduction> list;
    for (const Reduction &reduction : predefined_reductions()) {
        if (std::find(names.begin(), names.end(), reduction.name) != names.end()) {
            list.push_back(reduction);
        }
    }
    return list;
}

// No pair with a gap: with MPI_DOUBLE_INT Open MPI (up to 6.0) writes beyond the end of memory of
// its own. No bits of 8 bytes: osc/rdma of Open MPI 5.0 gets them wrong.
std::vector<Reduction> accumulations() {
    std::vector<Reduction> list =
        select({"MPI_SUM of MPI_INT", "MPI_SUM of MPI_DOUBLE", "MPI_PROD of MPI_FLOAT",
                "MPI_BXOR of MPI_UINT32_T", "MPI_MAX of MPI_SHORT", "MPI_LAND of MPI_INT8_T",
                "MPI_MAXLOC of MPI_2INT", "MPI_SUM of MPI_C_DOUBLE_COMPLEX"});
    list.push_back(replace(sum_of_ints()));
    // Without CUDA osc/rdma serves the window, and that of Open MPI 4.1 gets wrong data.
    if (!kOldOpenMpi) {
        list.push_back(of_vectors(sum_of_ints()));
    }
    return list;
}

// The operands: `origin` of this rank, and a window that the left neighbour changes. What is in the
// window of rank r before are the values of rank r + number of ranks.
struct Operands {
    Operands(Exchange &exchange, const Trial &trial, const Setting &setting, int count)
        : group(trial.group()), bytes(make_byte()) {
        const Reduction &reduction = setting.reduction;
        const Layout &layout = *reduction.layout;
        origin = exchange.blank(Role::source, layout, count);
        origin.fill(0, reduction.values(group.rank, count));

        const int size = kFront + static_cast<int>(layout.span(count).end);
        memory = setting.flavor == Flavor::allocate
                     ? exchange.on_host(*bytes, size)
                     : exchange.blank(Role::destination, *bytes, size);
        const Items window = memory.part(kFront, layout, count);
        Bytes result = reduction.values(group.rank + group.size, count);
        window.fill(0, result);
        reduction.combine(reduction.values(trial.left(), count), result);
        window.change(0, result);
        window.ignore_padding(0, count);
        fetched = reduction.values(trial.right() + group.size, count);
    }

    // Where MPI_Get_accumulate and MPI_Fetch_and_op put what was in the window before.
    Items make_result(Exchange &exchange, const Layout &layout, int count) const {
        const Items result = exchange.destination(layout, count);
        result.expect(0, fetched);
        result.ignore_padding(0, count);
        return result;
    }

    const Group &group;
    LayoutPtr bytes;
    Items origin;
    Items memory;
    Bytes fetched;
};

std::vector<int> counts(const Trial &trial) {
    return trial.quick() ? std::vector<int>{7} : std::vector<int>{1, 7, 1000};
}

void test_accumulate(Trial &trial, const Setting &setting) {
    const MPI_Datatype type = setting.reduction.layout->type();
    const MPI_Op op = setting.reduction.op;
    for (int count : counts(trial)) {
        Exchange exchange(trial, text("count %d", count));
        const Operands operands(exchange, trial, setting, count);
        run_epoch(exchange, trial, setting.flavor, setting.epoch, operands.memory,
                  [&](const Target &target) {
                      const MPI_Aint displacement = target.base + kFront;
                      if (setting.with_request) {
                          MPI_Request request = MPI_REQUEST_NULL;
                          exchange.require(MPI_Raccumulate(operands.origin.address(), count, type,
                                                           target.rank, displacement, count, type,
                                                           op, target.window, &request),
                                           "MPI_Raccumulate");
                          exchange.wait(request);
                      } else {
                          exchange.require(
                              MPI_Accumulate(operands.origin.address(), count, type, target.rank,
                                             displacement, count, type, op, target.window),
                              "MPI_Accumulate");
                      }
                  });
    }
}

void test_get_accumulate(Trial &trial, const Setting &setting) {
    const Layout &layout = *setting.reduction.layout;
    const MPI_Datatype type = layout.type();
    const MPI_Op op = setting.reduction.op;
    for (int count : counts(trial)) {
        Exchange exchange(trial, text("count %d", count));
        const Operands operands(exchange, trial, setting, count);
        const Items result = operands.make_result(exchange, layout, count);
        run_epoch(exchange, trial, setting.flavor, setting.epoch, operands.memory,
                  [&](const Target &target) {
                      const MPI_Aint displacement = target.base + kFront;
                      if (setting.with_request) {
                          MPI_Request request = MPI_REQUEST_NULL;
                          exchange.require(MPI_Rget_accumulate(operands.origin.address(), count,
                                                               type, result.address(), count, type,
                                                               target.rank, displacement, count,
                                                               type, op, target.window, &request),
                                           "MPI_Rget_accumulate");
                          exchange.wait(request);
                      } else {
                          exchange.require(
                              MPI_Get_accumulate(operands.origin.address(), count, type,
                                                 result.address(), count, type, target.rank,
                                                 displacement, count, type, op, target.window),
                              "MPI_Get_accumulate");
                      }
                  });
    }
}

void test_fetch_and_op(Trial &trial, const Setting &setting) {
    const Layout &layout = *setting.reduction.layout;
    Exchange exchange(trial, "one value");
    const Operands operands(exchange, trial, setting, 1);
    const Items result = operands.make_result(exchange, layout, 1);
    run_epoch(
        exchange, trial, setting.flavor, setting.epoch, operands.memory, [&](const Target &target) {
            exchange.require(MPI_Fetch_and_op(operands.origin.address(), result.address(),
                                              layout.type(), target.rank, target.base + kFront,
                                              setting.reduction.op, target.window),
                             "MPI_Fetch_and_op");
        });
}

// Swaps if the value in the window is the one that is compared with.
void test_compare_and_swap(Trial &trial, const Setting &setting, bool equal) {
    const Layout &layout = *setting.reduction.layout;
    Exchange exchange(trial, "one value");
    const Operands operands(exchange, trial, setting, 1);
    const Items result = operands.make_result(exchange, layout, 1);
    const Items compared = exchange.blank(Role::source, layout, 1);
    Bytes value = operands.fetched;
    if (!equal) {
        value[0] = static_cast<unsigned char>(~value[0]);
        // Nothing changes in the window.
        operands.memory.part(kFront, layout, 1)
            .fill(0, setting.reduction.values(operands.group.rank + operands.group.size, 1));
    }
    compared.fill(0, value);
    run_epoch(
        exchange, trial, setting.flavor, setting.epoch, operands.memory, [&](const Target &target) {
            exchange.require(MPI_Compare_and_swap(operands.origin.address(), compared.address(),
                                                  result.address(), layout.type(), target.rank,
                                                  target.base + kFront, target.window),
                             "MPI_Compare_and_swap");
        });
}

std::string how(const Setting &setting) {
    return std::string(", ") + to_string(setting.flavor) + ", " + to_string(setting.epoch) + ", " +
           setting.reduction.name;
}

void add_accumulate(Registry &registry, const Setting &setting) {
    registry.add((setting.with_request ? "Raccumulate" : "Accumulate") + how(setting),
                 [setting](Trial &trial) { test_accumulate(trial, setting); });
}

void add_get_accumulate(Registry &registry, const Setting &setting) {
    registry.add((setting.with_request ? "Rget_accumulate" : "Get_accumulate") + how(setting),
                 [setting](Trial &trial) { test_get_accumulate(trial, setting); });
}

void add_accumulates(Registry &registry, Flavor flavor, Epoch epoch) {
    std::vector<Reduction> list{sum_of_ints()};
    if (flavor == Flavor::create && epoch == Epoch::lock) {
        list = accumulations();
    }
    for (const Reduction &reduction : list) {
        add_accumulate(registry, {reduction, flavor, epoch, false});
        add_get_accumulate(registry, {reduction, flavor, epoch, false});
    }
    add_get_accumulate(registry, {keep(sum_of_ints()), flavor, epoch, false});
    if (is_passive(epoch)) {
        add_accumulate(registry, {sum_of_ints(), flavor, epoch, true});
        add_get_accumulate(registry, {sum_of_ints(), flavor, epoch, true});
    }
}

std::vector<Reduction> fetching_operations() {
    std::vector<Reduction> list =
        select({"MPI_MAX of MPI_SHORT", "MPI_BXOR of MPI_UINT32_T", "MPI_BOR of MPI_BYTE"});
    for (const Reduction &sum :
         select({"MPI_SUM of MPI_INT", "MPI_SUM of MPI_LONG", "MPI_SUM of MPI_DOUBLE"})) {
        list.push_back(replace(sum));
        list.push_back(keep(sum));
        list.push_back(sum);
    }
    return list;
}

// The names of the types come from the operation that replaces.
bool can_compare_and_swap(const Reduction &reduction, Flavor flavor) {
    // osc/rdma of Open MPI 4.1 crashes with 8 bytes in memory of MPI_Win_allocate.
    const bool crashes =
        kOldOpenMpi && flavor == Flavor::allocate && reduction.layout->type() != MPI_INT;
    return reduction.op == MPI_REPLACE && reduction.layout->type() != MPI_DOUBLE && !crashes;
}

void add_single_values(Registry &registry, Flavor flavor, Epoch epoch) {
    for (const Reduction &reduction : fetching_operations()) {
        const Setting setting{reduction, flavor, epoch, false};
        registry.add("Fetch_and_op" + how(setting),
                     [setting](Trial &trial) { test_fetch_and_op(trial, setting); });
        if (!can_compare_and_swap(reduction, flavor)) {
            continue;
        }
        for (bool equal : {true, false}) {
            const std::string name = std::string("Compare_and_swap, ") + to_string(flavor) + ", " +
                                     to_string(epoch) + ", " + reduction.layout->name() +
                                     (equal ? ", equal" : ", not equal");
            registry.add(name, [setting, equal](Trial &trial) {
                test_compare_and_swap(trial, setting, equal);
            });
        }
    }
}

}  // namespace

void add_atomics(Registry &registry) {
    for (Flavor flavor : {Flavor::create, Flavor::allocate}) {
        if (!can_make_windows(registry.world(), flavor)) {
            continue;
        }
        for (Epoch epoch : {Epoch::fence, Epoch::lock, Epoch::lock_all, Epoch::post_start}) {
            add_accumulates(registry, flavor, epoch);
            add_single_values(registry, flavor, epoch);
        }
    }
}

}  // namespace gpushm::mpi_test::operations
