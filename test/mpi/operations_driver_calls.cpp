// SPDX-License-Identifier: BSD-3-Clause
// How many copies of the driver a message costs. Counted by the simulated driver.
#include "operations_mpi_version.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

namespace gpushm::mpi_test::operations {
namespace {

using CallCount = unsigned long (*)(const char *);

// Null: the driver does not count.
CallCount counter() {
    static void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    static const auto count = reinterpret_cast<CallCount>(
        driver != nullptr ? dlsym(driver, "simcuda_call_count") : nullptr);
    return count;
}

unsigned long copies_so_far() {
    unsigned long sum = 0;
    for (const char *function :
         {"cuMemcpy2DAsync", "cuMemcpyAsync", "cuMemcpyBatchAsync", "cuLaunchKernel"}) {
        sum += counter()(function);
    }
    return sum;
}

// Single elements at unequal distances.
LayoutPtr make_scattered() {
    constexpr int kElements = 200;
    std::vector<int> places;
    std::vector<Piece> pieces;
    for (int i = 0; i < kElements; ++i) {
        places.push_back(4 * i + i * i % 3);
        pieces.push_back({make_int(), places.back() * static_cast<ptrdiff_t>(sizeof(int)), 1});
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_indexed_block(kElements, 1, places.data(), MPI_INT, &type);
    return derive("scattered", type, pieces);
}

// Each side of a short message copies its elements by one launch, once memory is page-locked. A
// build without kernels has no such launch, and a user's limit may be below the message.
void test_short_message(Trial &trial) {
    const LayoutPtr scattered = make_scattered();
    unsigned long copies = 0;
    for (const char *what : {"first", "second"}) {
        Exchange exchange(trial, what);
        const Items from = exchange.source(*scattered, 1);
        const Items to = exchange.destination(*scattered, 1);
        to.expect(0, exchange.sent(trial.left(), *scattered, 1));
        exchange.run([&] {
            const unsigned long before = copies_so_far();
            exchange.require(MPI_Sendrecv(from.address(), 1, scattered->type(), trial.right(), 3,
                                          to.address(), 1, scattered->type(), trial.left(), 3,
                                          trial.group().comm, MPI_STATUS_IGNORE),
                             "MPI_Sendrecv");
            copies = copies_so_far() - before;
        });
    }
    const bool in_device_memory = trial.kind(Role::source) == MemoryKind::device &&
                                  trial.kind(Role::destination) == MemoryKind::device;
    const bool has_kernels = counter()("cuModuleLoadData") != 0;
    if (in_device_memory && has_kernels && copies != 2 &&
        getenv("UCX_GPUSHM_OPENMPI_STAGING") == nullptr) {
        trial.fail(text("%lu copies instead of 2", copies));
    }
}

// The root copies its buffer once for all ranks, and each rank its part.
void test_short_scatter(Trial &trial) {
    constexpr int kElements = 10;
    const LayoutPtr type = make_int();
    const Group &group = trial.group();
    const bool is_root = group.rank == 0;
    unsigned long copies = 0;
    for (const char *what : {"first", "second"}) {
        Exchange exchange(trial, what);
        const Items out = is_root ? exchange.source(*type, kElements * group.size) : Items();
        const Items in = exchange.destination(*type, kElements);
        const Bytes all = exchange.sent(0, *type, kElements * group.size);
        const auto part = static_cast<ptrdiff_t>(kElements * sizeof(int));
        in.expect(0, Bytes(all.begin() + part * group.rank, all.begin() + part * (group.rank + 1)));
        exchange.run([&] {
            const unsigned long before = copies_so_far();
            exchange.require(MPI_Scatter(out.address(), kElements, type->type(), in.address(),
                                         kElements, type->type(), 0, group.comm),
                             "MPI_Scatter");
            copies = copies_so_far() - before;
        });
    }
    const bool in_device_memory = trial.kind(Role::source) == MemoryKind::device &&
                                  trial.kind(Role::destination) == MemoryKind::device;
    const unsigned long most = is_root ? 2 : 1;
    if (in_device_memory && copies > most) {
        trial.fail(text("%lu copies instead of %lu", copies, most));
    }
}

#if GPUSHM_TEST_MPI4

using Copy = int (*)(void *destination, const void *source, size_t bytes);

Copy copy_function(const char *name) {
    return reinterpret_cast<Copy>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name));
}

// A persistent operation is started right behind copies that return before they are done, without
// any wait. In the last round the source has what the exchange expects.
void test_persistent_start(Trial &trial) {
    constexpr int kElements = 10;
    constexpr int kRounds = 50;
    const Copy to_gpu = copy_function("cuMemcpyHtoD_v2");
    const Copy from_gpu = copy_function("cuMemcpyDtoH_v2");
    const Group &group = trial.group();
    const LayoutPtr type = make_int();
    Exchange exchange(trial, "50 rounds");
    const Items own = exchange.source(*type, kElements);
    const Items all = exchange.destination(*type, kElements * group.size);
    for (int rank = 0; rank < group.size; ++rank) {
        all.expect(rank * kElements, exchange.sent(rank, *type, kElements));
    }
    const bool in_device_memory = trial.kind(Role::source) == MemoryKind::device &&
                                  trial.kind(Role::destination) == MemoryKind::device;
    if (!in_device_memory) {
        return;
    }
    exchange.run([&] {
        MPI_Request request = MPI_REQUEST_NULL;
        exchange.require(
            MPI_Allgather_init(own.address(), kElements, type->type(), all.address(), kElements,
                               type->type(), group.comm, MPI_INFO_NULL, &request),
            "MPI_Allgather_init");
        for (int round = 0; round < kRounds; ++round) {
            std::vector<int> values(kElements, 1000 * group.rank + round);
            const Bytes last = exchange.sent(group.rank, *type, kElements);
            const void *const source = round == kRounds - 1
                                           ? static_cast<const void *>(last.data())
                                           : static_cast<const void *>(values.data());
            to_gpu(own.address(), source, kElements * sizeof(int));
            exchange.require(MPI_Start(&request), "MPI_Start");
            exchange.wait(request);
            std::vector<int> got(static_cast<size_t>(kElements * group.size));
            from_gpu(got.data(), all.address(), got.size() * sizeof(int));
            for (size_t i = 0; round != kRounds - 1 && i < got.size(); ++i) {
                const int expected = 1000 * static_cast<int>(i / kElements) + round;
                if (got[i] != expected) {
                    trial.fail(text("round %d: element %zu is %d instead of %d", round, i, got[i],
                                    expected));
                    break;
                }
            }
        }
        MPI_Request_free(&request);
    });
}

#endif

}  // namespace

void add_driver_calls(Registry &registry) {
    if (counter() != nullptr) {
        registry.add("short scattered elements, calls of the driver", test_short_message);
        registry.add("short scatter, calls of the driver", test_short_scatter);
#if GPUSHM_TEST_MPI4
        registry.add("short Allgather_init behind copies", test_persistent_start);
#endif
    }
}

}  // namespace gpushm::mpi_test::operations
