// SPDX-License-Identifier: BSD-3-Clause
// MPI_Put and MPI_Get, and their forms with a request.
#include "operations_counts.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"
#include "operations_window.hpp"

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kFront = 48;  // bytes of the window in front of what is accessed

struct Setting {
    TypePair types;  // send: at the origin of a put and at the target of a get
    Flavor flavor;
    Epoch epoch;
    bool with_request;
    Largest largest;
};

int window_size(const Layout &layout, int count) {
    return kFront + static_cast<int>(layout.span(count).end);
}

// The memory of the window; that of MPI_Win_allocate is host memory.
Items window_memory(Exchange &exchange, const Setting &setting, Role role, const Layout &bytes,
                    int size) {
    return setting.flavor == Flavor::allocate ? exchange.on_host(bytes, size)
                                              : exchange.blank(role, bytes, size);
}

void put(Exchange &exchange, const Setting &setting, const Items &out, const Items &in,
         const Target &target) {
    const MPI_Aint displacement = target.base + kFront;
    if (!setting.with_request) {
        exchange.require(MPI_Put(out.address(), out.count(), out.type(), target.rank, displacement,
                                 in.count(), in.type(), target.window),
                         "MPI_Put");
        return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    exchange.require(MPI_Rput(out.address(), out.count(), out.type(), target.rank, displacement,
                              in.count(), in.type(), target.window, &request),
                     "MPI_Rput");
    exchange.wait(request);
}

void get(Exchange &exchange, const Setting &setting, const Items &in, const Items &out,
         const Target &target) {
    const MPI_Aint displacement = target.base + kFront;
    if (!setting.with_request) {
        exchange.require(MPI_Get(in.address(), in.count(), in.type(), target.rank, displacement,
                                 out.count(), out.type(), target.window),
                         "MPI_Get");
        return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    exchange.require(MPI_Rget(in.address(), in.count(), in.type(), target.rank, displacement,
                              out.count(), out.type(), target.window, &request),
                     "MPI_Rget");
    exchange.wait(request);
}

void test_put(Trial &trial, const Setting &setting) {
    const TypePair &types = setting.types;
    const LayoutPtr bytes = make_byte();
    for (int units : unit_counts(trial, types, setting.largest)) {
        const int out_count = units * types.send_unit;
        const int in_count = units * types.receive_unit;
        Exchange exchange(trial, text("count %d", out_count));
        const Items out = exchange.source(*types.send, out_count);
        const Items memory = window_memory(exchange, setting, Role::destination, *bytes,
                                           window_size(*types.receive, in_count));
        const Items in = memory.part(kFront, *types.receive, in_count);
        in.expect(0, exchange.sent(trial.left(), *types.send, out_count));
        run_epoch(exchange, trial, setting.flavor, setting.epoch, memory,
                  [&](const Target &target) { put(exchange, setting, out, in, target); });
    }
}

void test_get(Trial &trial, const Setting &setting) {
    const TypePair &types = setting.types;
    const LayoutPtr bytes = make_byte();
    for (int units : unit_counts(trial, types, setting.largest)) {
        const int out_count = units * types.send_unit;
        const int in_count = units * types.receive_unit;
        Exchange exchange(trial, text("count %d", out_count));
        const Items memory = window_memory(exchange, setting, Role::source, *bytes,
                                           window_size(*types.send, out_count));
        const Items out = memory.part(kFront, *types.send, out_count);
        out.fill(0, exchange.sent(trial.group().rank, *types.send, out_count));
        const Items in = exchange.destination(*types.receive, in_count);
        in.expect(0, exchange.sent(trial.right(), *types.send, out_count));
        run_epoch(exchange, trial, setting.flavor, setting.epoch, memory,
                  [&](const Target &target) { get(exchange, setting, in, out, target); });
    }
}

// Types of which consecutive items lie behind each other.
std::vector<TypePair> window_types() {
    std::vector<TypePair> types = few_types();
    types.push_back({"vector to ints", make_vector(), make_int(), 1, 6});
    types.push_back({"ints to vector", make_int(), make_vector(), 6, 1});
    return types;
}

void add_setting(Registry &registry, const Setting &setting) {
    const std::string how = std::string(", ") + to_string(setting.flavor) + ", " +
                            to_string(setting.epoch) + ", " + setting.types.name;
    registry.add((setting.with_request ? "Rput" : "Put") + how,
                 [setting](Trial &trial) { test_put(trial, setting); });
    registry.add((setting.with_request ? "Rget" : "Get") + how,
                 [setting](Trial &trial) { test_get(trial, setting); });
}

}  // namespace

void add_one_sided(Registry &registry) {
    for (Flavor flavor : {Flavor::create, Flavor::allocate, Flavor::dynamic}) {
        if (!can_make_windows(registry.world(), flavor)) {
            registry.leave_out(std::string("MPI_") + to_string(flavor) +
                               " does not work here, with host memory either");
            continue;
        }
        const std::vector<TypePair> list = flavor == Flavor::create ? window_types() : few_types();
        for (Epoch epoch : {Epoch::fence, Epoch::lock, Epoch::lock_all, Epoch::post_start}) {
            for (const TypePair &types : list) {
                const Largest largest = large_if_ints(types);
                add_setting(registry, {types, flavor, epoch, false, largest});
                if (is_passive(epoch)) {
                    add_setting(registry, {types, flavor, epoch, true, largest});
                }
            }
        }
    }
}

}  // namespace gpushm::mpi_test::operations
