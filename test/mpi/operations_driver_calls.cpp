// SPDX-License-Identifier: BSD-3-Clause
// How many copies of the driver a message costs. Counted by the simulated driver.
#include "operations_mpi_version.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <vector>

namespace gpushm::mpi_test::operations {
namespace {

using CallCount = unsigned long (*)(const char *);

// Null: there is no driver, or it has no such function.
void *driver_function(const char *name) {
    static void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver != nullptr ? dlsym(driver, name) : nullptr;
}

// Null: the driver does not count.
CallCount counter() {
    static const auto count = reinterpret_cast<CallCount>(driver_function("simcuda_call_count"));
    return count;
}

// Without those of kernels.
unsigned long plain_copies_so_far() {
    unsigned long sum = 0;
    for (const char *function : {"cuMemcpy2DAsync", "cuMemcpyAsync", "cuMemcpyBatchAsync"}) {
        sum += counter()(function);
    }
    return sum;
}

unsigned long copies_so_far() {
    return plain_copies_so_far() + counter()("cuLaunchKernel");
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

// A column of a matrix: pairs of ints.
LayoutPtr make_column(int rows = 256) {
    constexpr int kPitch = 16;  // ints from one row to the next
    std::vector<Piece> pieces;
    for (int row = 0; row < rows; ++row) {
        pieces.push_back({make_int(), row * kPitch * static_cast<ptrdiff_t>(sizeof(int)), 2});
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_vector(rows, 2, kPitch, MPI_INT, &type);
    return derive("column", type, pieces);
}

// Whether the GPU copies the elements of derived datatypes, by kernels, and the limits are
// gpushm's.
bool copies_elements_by_kernel(const Trial &trial) {
    return trial.kind(Role::source) == MemoryKind::device &&
           trial.kind(Role::destination) == MemoryKind::device &&
           counter()("cuModuleLoadData") != 0 && getenv("UCX_GPUSHM_OPENMPI_STAGING") == nullptr;
}

// The copies of this process for a message each way, once memory is page-locked and mapped.
unsigned long copies_of_message(Trial &trial, const Layout &layout) {
    unsigned long copies = 0;
    for (const char *what : {"first", "second"}) {
        Exchange exchange(trial, what);
        const Items from = exchange.source(layout, 1);
        const Items to = exchange.destination(layout, 1);
        to.expect(0, exchange.sent(trial.left(), layout, 1));
        exchange.run([&] {
            const unsigned long before = copies_so_far();
            exchange.require(
                MPI_Sendrecv(from.address(), 1, layout.type(), trial.right(), 3, to.address(), 1,
                             layout.type(), trial.left(), 3, trial.group().comm, MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
            copies = copies_so_far() - before;
        });
    }
    return copies;
}

// Each side of a short message copies its elements by one launch. A build without kernels has no
// such launch, and a user's limit may be below the message.
void test_short_message(Trial &trial) {
    const unsigned long copies = copies_of_message(trial, *make_scattered());
    if (copies_elements_by_kernel(trial) && copies != 2) {
        trial.fail(text("%lu copies instead of 2", copies));
    }
}

// Equal rows are copied by one call on each side, or by one between both GPUs. The elements are not
// packed in GPU memory besides.
void test_short_column(Trial &trial) {
    const unsigned long copies = copies_of_message(trial, *make_column());
    if (copies_elements_by_kernel(trial) && copies > 2) {
        trial.fail(text("%lu copies, more than 2", copies));
    }
}

// Each message of an exchange with many neighbours keeps its elements in memory of its own until it
// is complete.
void test_many_short_messages(Trial &trial) {
    constexpr int kMessages = 150;
    const LayoutPtr scattered = make_scattered();
    Exchange exchange(trial, "150 messages each way");
    const Items from = exchange.source(*scattered, kMessages);
    const Items to = exchange.destination(*scattered, kMessages);
    to.expect(0, exchange.sent(trial.left(), *scattered, kMessages));
    unsigned long copies = 0;
    exchange.run([&] {
        const unsigned long before = copies_so_far();
        std::vector<MPI_Request> requests;
        for (int i = 0; i < kMessages; ++i) {
            requests.push_back(MPI_REQUEST_NULL);
            exchange.require(MPI_Irecv(to.address(i), 1, scattered->type(), trial.left(), i,
                                       trial.group().comm, &requests.back()),
                             "MPI_Irecv");
        }
        for (int i = 0; i < kMessages; ++i) {
            requests.push_back(MPI_REQUEST_NULL);
            exchange.require(MPI_Isend(from.address(i), 1, scattered->type(), trial.right(), i,
                                       trial.group().comm, &requests.back()),
                             "MPI_Isend");
        }
        exchange.wait_all(requests);
        copies = copies_so_far() - before;
    });
    // The first copies page-lock memory, and may be plain ones.
    if (copies_elements_by_kernel(trial) && copies > 2 * kMessages) {
        trial.fail(text("%lu copies of %d messages", copies, 2 * kMessages));
    }
}

// Of the collectives that run in host memory.
bool has_default_limit() {
    return getenv("UCX_GPUSHM_OPENMPI_HOST_COLLECTIVES") == nullptr;
}

// Whether small collectives run in host memory: both buffers of a test are device memory, the user
// has set no limit, and requests can be watched.
bool runs_in_host_memory(const Trial &trial) {
    int threads = MPI_THREAD_SINGLE;
    MPI_Query_thread(&threads);
    return threads != MPI_THREAD_MULTIPLE && has_default_limit() &&
           trial.kind(Role::source) == MemoryKind::device &&
           trial.kind(Role::destination) == MemoryKind::device;
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
            const unsigned long before = plain_copies_so_far();
            exchange.require(MPI_Scatter(out.address(), kElements, type->type(), in.address(),
                                         kElements, type->type(), 0, group.comm),
                             "MPI_Scatter");
            copies = plain_copies_so_far() - before;
        });
    }
    const unsigned long most = is_root ? 2 : 1;
    if (runs_in_host_memory(trial) && copies > most) {
        trial.fail(text("%lu copies instead of %lu", copies, most));
    }
}

// The input is copied to host memory, and the result back, whatever the algorithm does.
void test_short_allgather(Trial &trial) {
    constexpr int kElements = 10;
    const LayoutPtr type = make_int();
    const Group &group = trial.group();
    unsigned long copies = 0;
    for (const char *what : {"first", "second"}) {
        Exchange exchange(trial, what);
        const Items own = exchange.source(*type, kElements);
        const Items all = exchange.destination(*type, kElements * group.size);
        for (int rank = 0; rank < group.size; ++rank) {
            all.expect(rank * kElements, exchange.sent(rank, *type, kElements));
        }
        exchange.run([&] {
            const unsigned long before = plain_copies_so_far();
            MPI_Request request = MPI_REQUEST_NULL;
            exchange.require(MPI_Iallgather(own.address(), kElements, type->type(), all.address(),
                                            kElements, type->type(), group.comm, &request),
                             "MPI_Iallgather");
            exchange.wait(request);
            copies = plain_copies_so_far() - before;
        });
    }
    if (runs_in_host_memory(trial) && copies > 2) {
        trial.fail(text("%lu copies instead of 2", copies));
    }
}

int count_of_gpus() {
    const auto count = reinterpret_cast<int (*)(int *)>(driver_function("cuDeviceGetCount"));
    int devices = 0;
    return count(&devices) == 0 ? devices : 0;
}

int rank_in_world() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

// Rank n has GPU n modulo the GPUs.
bool shares_gpu() {
    const int devices = count_of_gpus();
    const int rank = rank_in_world();
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return rank >= devices || rank + devices < size;
}

// Where the programs of several ranks launch kernels on a GPU, those of gpushm would wait for them.
// So each rank copies the rows of a column by the copy engines: one call for its message, one for
// its receive.
void test_column_beside_kernels(Trial &trial) {
    constexpr int kRounds = 1000;
    const LayoutPtr column = make_column(2048);
    const Group &group = trial.group();
    using Launch = int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, void *, void **, void **);
    const auto launch = reinterpret_cast<Launch>(driver_function("cuLaunchKernel"));
    const bool is_tested = copies_elements_by_kernel(trial) && shares_gpu();
    const auto expected = static_cast<unsigned long>(2 * group.size);
    unsigned long sum = 0;  // of all ranks
    int as_expected = 0;    // in a row
    int rounds = 0;
    for (; as_expected < 50 && rounds < kRounds; ++rounds) {
        Exchange exchange(trial, text("round %d", rounds));
        const Items from = exchange.source(*column, 1);
        const Items to = exchange.destination(*column, 1);
        to.expect(0, exchange.sent(trial.left(), *column, 1));
        exchange.run([&] {
            if (is_tested) {
                launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                       nullptr);  // is refused, and counts
            }
            const unsigned long before = copies_so_far();
            exchange.require(
                MPI_Sendrecv(from.address(), 1, column->type(), trial.right(), 3, to.address(), 1,
                             column->type(), trial.left(), 3, group.comm, MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
            const unsigned long copies = is_tested ? copies_so_far() - before : 2;
            MPI_Allreduce(&copies, &sum, 1, MPI_UNSIGNED_LONG, MPI_SUM, group.comm);
        });
        as_expected = sum == expected ? as_expected + 1 : 0;
    }
    if (as_expected < 50) {
        trial.fail(text("%lu copies by %d ranks instead of 2 each", sum, group.size));
    }
}

// The GPU reduces them. MPI does not say that characters are numbers, but Open MPI reduces them.
void test_reduced_characters(Trial &trial) {
    constexpr int kElements = 100'000;
    const LayoutPtr type = make_byte();
    unsigned long copies = 0;
    unsigned long launches = 0;
    for (const char *what : {"first", "second"}) {
        Exchange exchange(trial, what);
        const Items left = exchange.blank(Role::source, *type, kElements);
        const Items right = exchange.destination(*type, kElements);
        left.fill(0, Bytes(kElements, 100));
        right.fill(0, Bytes(kElements, 20));
        right.change(0, Bytes(kElements, 120));
        exchange.run([&] {
            const unsigned long copies_before = plain_copies_so_far();
            const unsigned long launches_before = counter()("cuLaunchKernel");
            exchange.require(
                MPI_Reduce_local(left.address(), right.address(), kElements, MPI_CHAR, MPI_SUM),
                "MPI_Reduce_local");
            copies = plain_copies_so_far() - copies_before;
            launches = counter()("cuLaunchKernel") - launches_before;
        });
    }
    if (copies_elements_by_kernel(trial) && (copies != 0 || launches != 1)) {
        trial.fail(text("%lu copies and %lu launches instead of one launch", copies, launches));
    }
}

// Kernels that reduce would wait for those of the other ranks on the GPU, so that few ranks of each
// GPU have any. The ranks need some milliseconds to find each other.
void reduce_on_shared_gpu(Trial &trial, int elements, int most_with_kernels) {
    constexpr int kRounds = 1000;
    const LayoutPtr type = make_byte();
    const Group &group = trial.group();
    const bool is_tested = runs_in_host_memory(trial) && shares_gpu();
    const auto gpus = static_cast<size_t>(count_of_gpus());
    std::vector<int> ranks_with_kernels(gpus);  // of each GPU
    int rounds = 0;
    for (bool is_shared = false; !is_shared && rounds < kRounds; ++rounds) {
        Exchange exchange(trial, "one round");
        const Items own = exchange.blank(Role::source, *type, elements);
        const Items all = exchange.destination(*type, elements);
        const auto bytes = static_cast<size_t>(elements);
        own.fill(0, Bytes(bytes, 7));
        all.change(0, Bytes(bytes, static_cast<unsigned char>(7 * group.size)));
        exchange.run([&] {
            const unsigned long before = counter()("cuLaunchKernel");
            exchange.require(MPI_Allreduce(own.address(), all.address(), elements, MPI_CHAR,
                                           MPI_SUM, group.comm),
                             "MPI_Allreduce");
            std::vector<int> own_kernels(gpus);
            own_kernels[static_cast<size_t>(rank_in_world()) % gpus] =
                is_tested && counter()("cuLaunchKernel") != before ? 1 : 0;
            MPI_Allreduce(own_kernels.data(), ranks_with_kernels.data(), static_cast<int>(gpus),
                          MPI_INT, MPI_SUM, group.comm);
        });
        is_shared = std::all_of(ranks_with_kernels.begin(), ranks_with_kernels.end(),
                                [=](int ranks) { return ranks <= most_with_kernels; });
    }
    if (rounds == kRounds) {
        trial.fail(
            text("more than %d ranks reduce %d bytes on one GPU", most_with_kernels, elements));
    }
}

void test_reduction_on_shared_gpu(Trial &trial) {
    reduce_on_shared_gpu(trial, 100'000, 0);
    reduce_on_shared_gpu(trial, 1'000'000, 1);
}

// By host memory each rank copies its input and its result, while each message would be a copy by
// the one process of its GPU that copies for the others.
void test_alltoall_on_shared_gpu(Trial &trial) {
    constexpr int kRounds = 1000;
    const LayoutPtr type = make_byte();
    const Group &group = trial.group();
    const int elements = 48'000 / group.size;  // to each rank
    const bool is_tested = runs_in_host_memory(trial) && shares_gpu();
    unsigned long sum = ULONG_MAX;  // of all ranks
    int rounds = 0;
    for (; sum > 2 * static_cast<unsigned long>(group.size) && rounds < kRounds; ++rounds) {
        Exchange exchange(trial, text("round %d", rounds));
        const auto bytes = static_cast<size_t>(elements) * group.size;
        const Items own = exchange.blank(Role::source, *type, elements * group.size);
        const Items all = exchange.destination(*type, elements * group.size);
        own.fill(0, Bytes(bytes, static_cast<unsigned char>(rounds + 3 * group.rank)));
        for (int rank = 0; rank < group.size; ++rank) {
            all.change(rank * elements, Bytes(static_cast<size_t>(elements),
                                              static_cast<unsigned char>(rounds + 3 * rank)));
        }
        exchange.run([&] {
            const unsigned long before = copies_so_far();
            exchange.require(MPI_Alltoall(own.address(), elements, MPI_BYTE, all.address(),
                                          elements, MPI_BYTE, group.comm),
                             "MPI_Alltoall");
            const unsigned long copies = is_tested ? copies_so_far() - before : 0;
            MPI_Allreduce(&copies, &sum, 1, MPI_UNSIGNED_LONG, MPI_SUM, group.comm);
        });
    }
    if (sum > 2 * static_cast<unsigned long>(group.size)) {
        trial.fail(text("%lu copies by %d ranks instead of 2 each", sum, group.size));
    }
}

// Two ranks that have agreed need one launch each, which reads the peer's numbers.
void test_allreduce_of_pair(Trial &trial) {
    constexpr int kElements = 20'000;
    constexpr int kRounds = 8;
    const LayoutPtr type = make_int();
    const Group &group = trial.group();
    unsigned long fewest = ULONG_MAX;
    MPI_Comm comm = MPI_COMM_NULL;  // of which nothing is known
    MPI_Comm_dup(group.comm, &comm);
    for (int round = 0; round < kRounds; ++round) {
        Exchange exchange(trial, text("round %d", round));
        const Items own = exchange.blank(Role::source, *type, kElements);
        const Items all = exchange.destination(*type, kElements);
        own.fill(0, Bytes(kElements * sizeof(int), static_cast<unsigned char>(round)));
        all.change(0, Bytes(kElements * sizeof(int), static_cast<unsigned char>(2 * round)));
        exchange.run([&] {
            const unsigned long before = copies_so_far();
            exchange.require(
                MPI_Allreduce(own.address(), all.address(), kElements, MPI_INT, MPI_SUM, comm),
                "MPI_Allreduce");
            fewest = std::min(fewest, copies_so_far() - before);
        });
    }
    MPI_Comm_free(&comm);
    if (copies_elements_by_kernel(trial) && !shares_gpu() && has_default_limit() && fewest > 1) {
        trial.fail(text("%lu copies and launches instead of 1", fewest));
    }
}

#if GPUSHM_TEST_MPI4

using Copy = int (*)(void *destination, const void *source, size_t bytes);

// Persistent operations are started right behind copies that return before they are done, without
// any wait, together with one that needs no messages. In the last round the source has what the
// exchange expects.
class PersistentRounds {
public:
    explicit PersistentRounds(Trial &trial)
        : trial_(trial),
          exchange_(trial, "50 rounds"),
          own_(exchange_.source(*type_, kElements)),
          all_(exchange_.destination(*type_, kElements * trial.group().size)) {
        for (int rank = 0; rank < trial.group().size; ++rank) {
            all_.expect(rank * kElements, exchange_.sent(rank, *type_, kElements));
        }
    }

    void run() {
        exchange_.run([&] {
            const Group &group = trial_.group();
            MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
            exchange_.require(
                MPI_Allgather_init(own_.address(), kElements, type_->type(), all_.address(),
                                   kElements, type_->type(), group.comm, MPI_INFO_NULL, requests),
                "MPI_Allgather_init");
            exchange_.require(
                MPI_Allreduce_init(MPI_IN_PLACE, own_.address(), kElements, type_->type(), MPI_SUM,
                                   MPI_COMM_SELF, MPI_INFO_NULL, requests + 1),
                "MPI_Allreduce_init");
            for (int round = 0; round < kRounds; ++round) {
                write_source(round);
                const unsigned long before = plain_copies_so_far();
                exchange_.require(MPI_Startall(2, requests), "MPI_Startall");
                exchange_.require(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
                copies_ = plain_copies_so_far() - before;
                if (round < kRounds - 1) {
                    check(round);
                }
            }
            MPI_Request_free(requests);
            MPI_Request_free(requests + 1);
        });
        if (runs_in_host_memory(trial_) && copies_ > 2) {
            trial_.fail(text("%lu copies instead of 2", copies_));
        }
    }

private:
    static constexpr int kElements = 10;
    static constexpr int kRounds = 50;

    void write_source(int round) {
        const std::vector<int> values(kElements, 1000 * trial_.group().rank + round);
        const Bytes last = exchange_.sent(trial_.group().rank, *type_, kElements);
        const void *const source = round == kRounds - 1 ? static_cast<const void *>(last.data())
                                                        : static_cast<const void *>(values.data());
        to_gpu_(own_.address(), source, kElements * sizeof(int));
    }

    void check(int round) {
        std::vector<int> got(static_cast<size_t>(kElements * trial_.group().size));
        from_gpu_(got.data(), all_.address(), got.size() * sizeof(int));
        for (size_t i = 0; i < got.size(); ++i) {
            const int expected = 1000 * static_cast<int>(i / kElements) + round;
            if (got[i] != expected) {
                trial_.fail(
                    text("round %d: element %zu is %d instead of %d", round, i, got[i], expected));
                return;
            }
        }
    }

    const Copy to_gpu_ = reinterpret_cast<Copy>(driver_function("cuMemcpyHtoD_v2"));
    const Copy from_gpu_ = reinterpret_cast<Copy>(driver_function("cuMemcpyDtoH_v2"));
    Trial &trial_;
    const LayoutPtr type_ = make_int();
    Exchange exchange_;
    const Items own_;
    const Items all_;
    unsigned long copies_ = 0;
};

void test_persistent_start(Trial &trial) {
    if (trial.kind(Role::source) == MemoryKind::device &&
        trial.kind(Role::destination) == MemoryKind::device) {
        PersistentRounds(trial).run();
    }
}

// Temporary buffers of persistent reductions, which libnbc never frees, are not GPU memory: so many
// would use up what gpushm gives out.
void test_many_persistent(Trial &trial) {
    constexpr int kElements = 30000;  // 120 KB, more than goes through host memory
    constexpr int kRequests = 600;
    const LayoutPtr type = make_int();
    if (trial.kind(Role::source) != MemoryKind::device) {
        return;
    }
    Exchange exchange(trial, "600 requests");
    const Items own = exchange.source(*type, kElements);
    const Items unused = exchange.blank(Role::destination, *type, kElements);
    exchange.run([&] {
        const auto allocations = counter()("cuMemAlloc");
        for (int i = 0; i < kRequests; ++i) {
            MPI_Request request = MPI_REQUEST_NULL;
            exchange.require(
                MPI_Allreduce_init(own.address(), unused.address(), kElements, type->type(),
                                   MPI_MAX, trial.group().comm, MPI_INFO_NULL, &request),
                "MPI_Allreduce_init");
            MPI_Request_free(&request);
        }
        if (counter()("cuMemAlloc") > allocations + 2) {
            trial.fail(text("%lu allocations of GPU memory for %d requests",
                            counter()("cuMemAlloc") - allocations, kRequests));
        }
    });
}

#endif

}  // namespace

void add_driver_calls(Registry &registry) {
    if (counter() != nullptr) {
        registry.add("short scattered elements, calls of the driver", test_short_message);
        registry.add("short column, calls of the driver", test_short_column);
        registry.add("many short messages, calls of the driver", test_many_short_messages);
        if (registry.world().size > 1) {
            registry.add("column on a shared GPU beside kernels", test_column_beside_kernels);
        }
        registry.add("short scatter, calls of the driver", test_short_scatter);
        registry.add("short Iallgather, calls of the driver", test_short_allgather);
        registry.add("reduced characters, calls of the driver", test_reduced_characters);
        registry.add("reduction on a shared GPU", test_reduction_on_shared_gpu);
        if (registry.world().size > 2) {
            registry.add("Alltoall on a shared GPU", test_alltoall_on_shared_gpu);
        }
        if (registry.world().size == 2) {
            registry.add("Allreduce of a pair, calls of the driver", test_allreduce_of_pair);
        }
#if GPUSHM_TEST_MPI4
        registry.add("short Allgather_init behind copies", test_persistent_start);
        registry.add("many Allreduce_init, GPU memory", test_many_persistent);
#endif
    }
}

}  // namespace gpushm::mpi_test::operations
