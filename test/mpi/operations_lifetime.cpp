// SPDX-License-Identifier: BSD-3-Clause
// Handles that the program frees, and calls that fail, while MPI has something under way.
#include "operations_registry.hpp"
#include "operations_types.hpp"
#include "operations_window.hpp"

#include <array>
#include <vector>

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kElements = 50;

void add_and_one(void *in, void *inout, int *count, MPI_Datatype *) {
    const auto *left = static_cast<const int *>(in);
    auto *right = static_cast<int *>(inout);
    for (int i = 0; i < *count; ++i) {
        right[i] += left[i] + 1;
    }
}

Bytes bytes_of(const std::vector<int> &values) {
    const auto *begin = reinterpret_cast<const unsigned char *>(values.data());
    return Bytes(begin, begin + values.size() * sizeof(int));
}

// A program may free the operation of a reduction that is under way. More of them than there may be
// at a time, beside one that lives, so that not all have the same address.
void test_op_free(Trial &trial) {
    constexpr int kRounds = 300;
    const Group &group = trial.group();
    for (int round = 0; round < kRounds; ++round) {
        Exchange exchange(trial, text("operation %d", round));
        const LayoutPtr ints = make_int();
        const Items from = exchange.blank(Role::source, *ints, kElements);
        const Items to = exchange.destination(*ints, kElements);
        int sum = group.size - 1;
        for (int rank = 0; rank < group.size; ++rank) {
            sum += rank + round;
        }
        from.fill(0, bytes_of(std::vector<int>(kElements, group.rank + round)));
        to.expect(0, bytes_of(std::vector<int>(kElements, sum)));
        MPI_Op lasting = MPI_OP_NULL;
        MPI_Op_create(add_and_one, 1, &lasting);
        exchange.run([&] {
            MPI_Op op = MPI_OP_NULL;
            MPI_Op_create(add_and_one, 1, &op);
            MPI_Request request = MPI_REQUEST_NULL;
            exchange.require(MPI_Iallreduce(from.address(), to.address(), kElements, MPI_INT, op,
                                            group.comm, &request),
                             "MPI_Iallreduce");
            MPI_Op_free(&op);
            exchange.wait(request);
        });
        MPI_Op_free(&lasting);
    }
}

// MPI_Op_free of nothing is an error like any other.
void test_refused_op_free(Trial &trial) {
    MPI_Errhandler before;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Op_free(nullptr) == MPI_SUCCESS) {
        trial.fail("MPI_Op_free of nothing succeeds");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    MPI_Errhandler_free(&before);
}

// An operation that MPI refuses writes nothing, whatever is completed after it.
void test_refused_fetch_and_op(Trial &trial) {
    Exchange exchange(trial, "no such rank, or no datatype");
    const LayoutPtr ints = make_int();
    const Items origin = exchange.source(*ints, 1);
    const Items result = exchange.destination(*ints, 1);
    const Items memory = exchange.blank(Role::destination, *make_byte(), 64);
    run_epoch(exchange, trial, Flavor::create, Epoch::lock_all, memory, [&](const Target &target) {
        MPI_Win_set_errhandler(target.window, MPI_ERRORS_RETURN);
        if (MPI_Fetch_and_op(origin.address(), result.address(), MPI_INT, trial.group().size + 7,
                             target.base, MPI_SUM, target.window) == MPI_SUCCESS) {
            exchange.fail("MPI_Fetch_and_op on a rank that there is not succeeds");
        }
        if (MPI_Fetch_and_op(origin.address(), result.address(), MPI_Datatype(), trial.group().rank,
                             target.base, MPI_SUM, target.window) == MPI_SUCCESS) {
            exchange.fail("MPI_Fetch_and_op of no datatype succeeds");
        }
        exchange.require(MPI_Win_flush_all(target.window), "MPI_Win_flush_all");
    });
}

// An operation on MPI_PROC_NULL writes nothing either, though it succeeds.
void test_atomics_on_nobody(Trial &trial) {
    Exchange exchange(trial, "MPI_PROC_NULL");
    const LayoutPtr ints = make_int();
    const Items origin = exchange.source(*ints, 1);
    const Items fetched = exchange.destination(*ints, 1);
    const Items swapped = exchange.destination(*ints, 1);
    const Items memory = exchange.blank(Role::destination, *make_byte(), 64);
    run_epoch(exchange, trial, Flavor::create, Epoch::lock_all, memory, [&](const Target &target) {
        exchange.require(MPI_Fetch_and_op(origin.address(), fetched.address(), MPI_INT,
                                          MPI_PROC_NULL, target.base, MPI_SUM, target.window),
                         "MPI_Fetch_and_op");
        exchange.require(MPI_Compare_and_swap(origin.address(), origin.address(), swapped.address(),
                                              MPI_INT, MPI_PROC_NULL, target.base, target.window),
                         "MPI_Compare_and_swap");
    });
}

// The same of operations with a request.
void test_requests_on_nobody(Trial &trial) {
    Exchange exchange(trial, "MPI_PROC_NULL");
    const LayoutPtr ints = make_int();
    const Items origin = exchange.source(*ints, 1);
    const Items read = exchange.destination(*ints, 1);
    const Items memory = exchange.blank(Role::destination, *make_byte(), 64);
    run_epoch(exchange, trial, Flavor::create, Epoch::lock_all, memory, [&](const Target &target) {
        std::array<MPI_Request, 5> requests;
        exchange.require(MPI_Rput(origin.address(), 1, MPI_INT, MPI_PROC_NULL, target.base, 1,
                                  MPI_INT, target.window, &requests[0]),
                         "MPI_Rput");
        exchange.require(MPI_Rget(read.address(), 1, MPI_INT, MPI_PROC_NULL, target.base, 1,
                                  MPI_INT, target.window, &requests[1]),
                         "MPI_Rget");
        exchange.require(MPI_Raccumulate(origin.address(), 1, MPI_INT, MPI_PROC_NULL, target.base,
                                         1, MPI_INT, MPI_SUM, target.window, &requests[2]),
                         "MPI_Raccumulate");
        exchange.require(MPI_Raccumulate(origin.address(), 1, MPI_INT, MPI_PROC_NULL, target.base,
                                         1, MPI_INT, MPI_REPLACE, target.window, &requests[3]),
                         "MPI_Raccumulate with MPI_REPLACE");
        exchange.require(MPI_Rget_accumulate(origin.address(), 1, MPI_INT, read.address(), 1,
                                             MPI_INT, MPI_PROC_NULL, target.base, 1, MPI_INT,
                                             MPI_SUM, target.window, &requests[4]),
                         "MPI_Rget_accumulate");
        exchange.require(
            MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall");
    });
}

}  // namespace

void add_lifetimes(Registry &registry) {
    registry.add("Op_free during Iallreduce", test_op_free);
    registry.add("Op_free that is refused", test_refused_op_free);
    if (can_make_windows(registry.world(), Flavor::create)) {
        registry.add("Fetch_and_op that is refused", test_refused_fetch_and_op);
        registry.add("Fetch_and_op and Compare_and_swap on MPI_PROC_NULL", test_atomics_on_nobody);
        registry.add("operations with a request on MPI_PROC_NULL", test_requests_on_nobody);
    }
}

}  // namespace gpushm::mpi_test::operations
