// SPDX-License-Identifier: BSD-3-Clause
// Windows whose users do what Open MPI's components for windows have got wrong, with buffers of
// each kind of memory, and without CUDA at all:
//
//   windows bounds     accumulates of types with bounds, at MPI_BOTTOM, of several elements, of
//                      nothing
//   windows polling    a rank that looks at its own memory until another one has changed it
//   windows blocks     types of many blocks, and random ones
//   windows swaps      MPI_Compare_and_swap of 1 and 2 bytes
//   windows late       buffers in GPU memory, which is used only after the window was made
//
// Each for two ranks or more; --no-cuda: host memory only, and nothing of CUDA is opened.
#include "cuda_driver.hpp"
#include "watchdog.hpp"
#include "windows_support.hpp"

#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr unsigned kSeconds = 60;
// ---------------------------------------------------------------- polling

// How a rank looks at an int of its own.
struct Look {
    const char *name;
    std::function<int(Ints &memory, Ints &result, MPI_Win)> look;
};

std::vector<Look> looks() {
    const auto fetched = [](Ints &result, MPI_Win window) {
        MPI_Win_flush(own_rank, window);
        return result.values()[0];
    };
    return {{"MPI_Win_sync",
             [](Ints &memory, Ints &, MPI_Win window) {
                 MPI_Win_sync(window);
                 return memory.values()[0];
             }},
            {"MPI_Get",
             [fetched](Ints &, Ints &result, MPI_Win window) {
                 MPI_Get(result.data(), 1, MPI_INT, own_rank, 0, 1, MPI_INT, window);
                 return fetched(result, window);
             }},
            {"MPI_Rget",
             [](Ints &, Ints &result, MPI_Win window) {
                 MPI_Request request = MPI_REQUEST_NULL;
                 MPI_Rget(result.data(), 1, MPI_INT, own_rank, 0, 1, MPI_INT, window, &request);
                 MPI_Wait(&request, MPI_STATUS_IGNORE);
                 return result.values()[0];
             }},
            {"MPI_Fetch_and_op",
             [fetched](Ints &, Ints &result, MPI_Win window) {
                 MPI_Fetch_and_op(nullptr, result.data(), MPI_INT, own_rank, 0, MPI_NO_OP, window);
                 return fetched(result, window);
             }},
            {"MPI_Get_accumulate", [fetched](Ints &, Ints &result, MPI_Win window) {
                 MPI_Get_accumulate(nullptr, 0, MPI_INT, result.data(), 1, MPI_INT, own_rank, 0, 1,
                                    MPI_INT, MPI_NO_OP, window);
                 return fetched(result, window);
             }}};
}

// The first two ranks hand a number to and fro.
void test_polling(const Place &place) {
    for (const Look &look : looks()) {
        note("%s in a loop, %s", look.name, place.name().c_str());
        Ints memory(place.driver, place.window, {0});
        Ints result(place.driver, place.origin, {0});
        const Window window(memory);
        MPI_Win_lock_all(0, window);
        for (int turn = 1; turn <= 20 && own_rank < 2; ++turn) {
            if (own_rank == turn % 2) {
                Ints number(place.driver, place.origin, {turn});
                MPI_Accumulate(number.data(), 1, MPI_INT, 1 - own_rank, 0, 1, MPI_INT, MPI_REPLACE,
                               window);
                MPI_Win_flush(1 - own_rank, window);
            } else {
                while (look.look(memory, result, window) != turn) {
                }
            }
        }
        MPI_Win_unlock_all(window);
    }
}

// ---------------------------------------------------------------- many blocks

enum class Direction { put, get, accumulate };

void test_transfer(const Place &place, Direction direction, int blocks, bool origin_apart,
                   bool target_apart) {
    const char *const name = direction == Direction::put   ? "MPI_Put"
                             : direction == Direction::get ? "MPI_Get"
                                                           : "MPI_Accumulate";
    const std::string what = std::string(name) + " of " + std::to_string(blocks) + " blocks, " +
                             place.name() + (origin_apart ? ", apart" : ", together") +
                             (target_apart ? " to apart" : " to together");
    note("%s", what.c_str());
    const bool is_get = direction == Direction::get;
    const size_t count = 2 * static_cast<size_t>(blocks);
    const std::vector<int> blank(count, kPad);
    const std::vector<int> given = numbers(count, 100 * own_rank);
    Ints local(place.driver, place.origin, is_get ? blank : given);
    Ints memory(place.driver, place.window, is_get ? given : blank);
    const Type every_other(blocks, 2);
    const MPI_Datatype origin_type = origin_apart ? MPI_Datatype(every_other) : MPI_INT;
    const MPI_Datatype target_type = target_apart ? MPI_Datatype(every_other) : MPI_INT;
    const int origin_count = origin_apart ? 1 : blocks;
    const int target_count = target_apart ? 1 : blocks;
    const Window window(memory);
    MPI_Win_fence(0, window);
    if (direction == Direction::put) {
        MPI_Put(local.data(), origin_count, origin_type, right_neighbor(), 0, target_count,
                target_type, window);
    } else if (is_get) {
        MPI_Get(local.data(), origin_count, origin_type, right_neighbor(), 0, target_count,
                target_type, window);
    } else {
        MPI_Accumulate(local.data(), origin_count, origin_type, right_neighbor(), 0, target_count,
                       target_type, MPI_SUM, window);
    }
    MPI_Win_fence(0, window);

    std::vector<int> wanted = blank;
    const int from = is_get ? right_neighbor() : left_neighbor();
    const int read_step = (is_get ? target_apart : origin_apart) ? 2 : 1;
    const int write_step = (is_get ? origin_apart : target_apart) ? 2 : 1;
    for (int i = 0; i < blocks; ++i) {
        const int value = 100 * from + i * read_step;
        int &place_of = wanted[static_cast<size_t>(i) * write_step];
        place_of = direction == Direction::accumulate ? kPad + value : value;
    }
    check((is_get ? local : memory).values() == wanted, what);
}

// `count` different places among `ints`, in any order: runs of a few and single ones.
std::vector<MPI_Aint> random_places(size_t count, size_t ints, std::mt19937 *random) {
    std::vector<MPI_Aint> places(ints);
    std::iota(places.begin(), places.end(), MPI_Aint{0});
    for (size_t i = 0; i < ints; i += 1 + (*random)() % 7) {
        std::swap(places[i], places[(*random)() % ints]);
    }
    const size_t first = (*random)() % (ints - count + 1);
    return {places.begin() + static_cast<ptrdiff_t>(first),
            places.begin() + static_cast<ptrdiff_t>(first + count)};
}

// Several operations in one epoch, each with types of its own, on the same elements. All ranks draw
// the same numbers.
void test_random_types(const Place &place) {
    constexpr size_t kInts = 6000;
    constexpr size_t kElements = 4000;
    std::mt19937 random(5);
    for (int round = 0; round < 4; ++round) {
        note("random types, %s, round %d", place.name().c_str(), round);
        Ints memory(place.driver, place.window, numbers(kInts, 100000 * own_rank));
        std::vector<int> wanted = numbers(kInts, 100000 * own_rank);
        std::vector<int> wanted_of_right = numbers(kInts, 100000 * right_neighbor());
        const Window window(memory);
        MPI_Win_lock_all(0, window);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int operation = 0; operation < 4; ++operation) {
            const std::vector<MPI_Aint> from = random_places(kElements, kInts, &random);
            const std::vector<MPI_Aint> to = random_places(kElements, kInts, &random);
            const auto in_bytes = [](std::vector<MPI_Aint> places) {
                for (MPI_Aint &of : places) {
                    of *= static_cast<MPI_Aint>(sizeof(int));
                }
                return places;
            };
            const Type local_type(in_bytes(from));
            const Type remote_type(in_bytes(to));
            const bool is_get = operation == 2;
            const int base = 1000000 * (operation + 1);
            Ints local(
                place.driver, place.origin,
                is_get ? std::vector<int>(kInts, kPad) : numbers(kInts, base + 10000 * own_rank));
            std::vector<int> wanted_local(kInts, kPad);
            if (is_get) {
                MPI_Get(local.data(), 1, local_type, right_neighbor(), 0, 1, remote_type, window);
            } else if (operation == 3) {
                MPI_Accumulate(local.data(), 1, local_type, right_neighbor(), 0, 1, remote_type,
                               MPI_SUM, window);
            } else {
                MPI_Put(local.data(), 1, local_type, right_neighbor(), 0, 1, remote_type, window);
            }
            MPI_Win_flush(right_neighbor(), window);
            for (size_t i = 0; i < kElements; ++i) {
                const auto here = static_cast<size_t>(from[i]);
                const auto there = static_cast<size_t>(to[i]);
                const auto given = [&](int rank) {
                    return base + 10000 * rank + static_cast<int>(here);
                };
                if (is_get) {
                    wanted_local[here] = wanted_of_right[there];
                } else {
                    const int sum = operation == 3 ? 1 : 0;
                    wanted_of_right[there] = sum * wanted_of_right[there] + given(own_rank);
                    wanted[there] = sum * wanted[there] + given(left_neighbor());
                }
            }
            check(!is_get || local.values() == wanted_local, "random types: what was fetched");
        }
        MPI_Win_unlock_all(window);
        MPI_Barrier(MPI_COMM_WORLD);
        check(memory.values() == wanted, "random types, " + place.name());
    }
}

void test_blocks(const Place &place) {
    test_random_types(place);

    constexpr int kBlocks = 2048;
    constexpr int kMany = 16384;
    for (Direction direction : {Direction::put, Direction::get, Direction::accumulate}) {
        test_transfer(place, direction, kBlocks, true, false);
        test_transfer(place, direction, kBlocks, false, true);
        const bool is_slowest = place.origin == MemoryKind::device && place.window == place.origin;
        test_transfer(place, direction, is_slowest ? kMany : kBlocks, true, true);
    }
}

// ---------------------------------------------------------------- small elements

// `number` with the first bytes of `other`.
int with_bytes_of(int number, int other, size_t bytes) {
    memcpy(&number, &other, bytes);
    return number;
}

// What cannot be done is an error, and changes nothing.
void test_swap(const Place &place, MPI_Datatype type, size_t bytes) {
    const std::string what =
        "MPI_Compare_and_swap of " + std::to_string(bytes) + " bytes, " + place.name();
    note("%s", what.c_str());
    constexpr int kOld = 0x01020304;
    constexpr int kNew = 0x11121314;
    Ints memory(place.driver, place.window, {kOld});
    Ints number(place.driver, place.origin, {kNew});
    Ints expected(place.driver, place.origin, {kOld});
    Ints result(place.driver, place.origin, {kPad});
    const Window window(memory);
    MPI_Win_lock_all(0, window);
    const bool is_done = MPI_Compare_and_swap(number.data(), expected.data(), result.data(), type,
                                              right_neighbor(), 0, window) == MPI_SUCCESS;
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    const int swapped = with_bytes_of(kOld, kNew, bytes);
    const int fetched = with_bytes_of(kPad, kOld, bytes);
    check(memory.values()[0] == (is_done ? swapped : kOld), what + ", window");
    check(result.values()[0] == (is_done ? fetched : kPad), what + ", result");
}

void test_swaps(const Place &place) {
    test_swap(place, MPI_BYTE, 1);
    test_swap(place, MPI_SHORT, 2);
    test_swap(place, MPI_INT, 4);
}

// ---------------------------------------------------------------- GPU memory after all

// Puts and gets of `local`, which is GPU memory, in a window of host memory.
void exchange_late(CudaDriver &driver, MemoryKind kind, Ints &memory, MPI_Win window) {
    constexpr int kInts = 1000;
    const std::vector<int> given = numbers(kInts, 100 * own_rank);
    const std::vector<int> left = numbers(kInts, 100 * left_neighbor());
    Ints source(&driver, kind, given);
    Ints result(&driver, kind, std::vector<int>(kInts, kPad));
    const int target = right_neighbor();
    const std::string name = to_string(kind);

    MPI_Win_fence(0, window);
    MPI_Put(source.data(), kInts, MPI_INT, target, 0, kInts, MPI_INT, window);
    MPI_Win_fence(0, window);
    check(memory.values() == left, "MPI_Put late, " + name);
    MPI_Get(result.data(), kInts, MPI_INT, target, 0, kInts, MPI_INT, window);
    MPI_Win_fence(0, window);
    check(result.values() == given, "MPI_Get late, " + name);

    Ints again(&driver, kind, std::vector<int>(kInts, kPad));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Win_lock_all(0, window);
    MPI_Rget(again.data(), kInts, MPI_INT, target, 0, kInts, MPI_INT, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(again.values() == given, "MPI_Rget late, " + name);
    MPI_Barrier(MPI_COMM_WORLD);
    Ints before(&driver, kind, std::vector<int>(kInts, kPad));
    MPI_Get_accumulate(source.data(), kInts, MPI_INT, before.data(), kInts, MPI_INT, target, 0,
                       kInts, MPI_INT, MPI_SUM, window);
    MPI_Win_flush(target, window);
    check(before.values() == given, "MPI_Get_accumulate late, " + name);
    MPI_Rput(source.data(), 1, MPI_INT, target, 1, 1, MPI_INT, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<int> sum = left;
    for (int &value : sum) {
        value *= 2;
    }
    sum[1] = left[0];
    check(memory.values() == sum, "MPI_Accumulate late, " + name);
}

// Its component knows no GPU memory: that is an error, and host memory is attached all the same.
void attach_late(CudaDriver &driver, MPI_Win window) {
    Ints on_gpu(&driver, MemoryKind::device, std::vector<int>(1000, kPad));
    Ints on_host(nullptr, MemoryKind::host, std::vector<int>(1000, kPad));
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    check(MPI_Win_attach(window, on_gpu.data(), on_gpu.bytes()) != MPI_SUCCESS,
          "MPI_Win_attach of GPU memory, late");
    check(MPI_Win_attach(window, on_host.data(), on_host.bytes()) == MPI_SUCCESS,
          "MPI_Win_attach, late");
    MPI_Win_detach(window, on_host.data());
}

// With this rank's device in use. Null, which has been said then, where there is none.
std::unique_ptr<CudaDriver> open_driver() {
    std::string reason;
    std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr) {
        std::printf("windows: skipped: %s\n", reason.c_str());
    } else {
        driver->use_device(own_rank % driver->device_count());
    }
    return driver;
}

int test_late() {
    Ints memory(nullptr, MemoryKind::host, std::vector<int>(1000, kPad));
    const Window window(memory);
    MPI_Win dynamic = MPI_WIN_NULL;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
    const std::unique_ptr<CudaDriver> driver = open_driver();
    if (driver == nullptr) {
        return 1;
    }
    for (MemoryKind kind : {MemoryKind::device, MemoryKind::managed}) {
        note("a window that was made before CUDA was used, %s", to_string(kind));
        exchange_late(*driver, kind, memory, window);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    attach_late(*driver, dynamic);
    MPI_Win_free(&dynamic);
    return 0;
}

int test_everywhere(void (*test)(const Place &), bool with_cuda) {
    if (!with_cuda) {
        test({nullptr, MemoryKind::host, MemoryKind::host});
        return 0;
    }
    const std::unique_ptr<CudaDriver> driver = open_driver();
    if (driver == nullptr) {
        return 1;
    }
    using Kind = MemoryKind;
    for (const auto &[origin, window] :
         {std::pair(Kind::host, Kind::host), std::pair(Kind::device, Kind::device),
          std::pair(Kind::managed, Kind::managed), std::pair(Kind::device, Kind::host),
          std::pair(Kind::host, Kind::device)}) {
        test({driver.get(), origin, window});
    }
    return 0;
}

int run(const std::string &mode, bool with_cuda) {
    if (mode == "bounds") {
        return test_everywhere(test_bounds, with_cuda);
    }
    if (mode == "polling") {
        return test_everywhere(test_polling, with_cuda);
    }
    if (mode == "blocks") {
        return test_everywhere(test_blocks, with_cuda);
    }
    if (mode == "swaps") {
        return test_everywhere(test_swaps, with_cuda);
    }
    if (mode == "late") {
        return test_late();
    }
    std::fprintf(stderr, "usage: windows bounds|polling|blocks|swaps|late [--no-cuda]\n");
    return 2;
}

// By one rank, because mpirun mixes long outputs of several ranks within their lines.
void print_reports() {
    if (own_rank != 0) {
        MPI_Send(report.data(), static_cast<int>(report.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        return;
    }
    std::fputs(report.c_str(), stdout);
    for (int rank = 1; rank < rank_count; ++rank) {
        MPI_Status status;
        int length = 0;
        MPI_Probe(rank, 0, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &length);
        std::string other(static_cast<size_t>(length), '\0');
        MPI_Recv(&other[0], length, MPI_CHAR, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        std::fputs(other.c_str(), stdout);
    }
}

int main_with_mpi(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    start_watchdog(own_rank, kSeconds);
    const std::string mode = argc > 1 ? argv[1] : "";
    const bool with_cuda = argc < 3 || std::strcmp(argv[2], "--no-cuda") != 0;
    const int status = run(mode, with_cuda);
    print_reports();
    stop_watchdog();
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (own_rank == 0 && status == 0) {
        std::printf("windows %s: %d failed\n", mode.c_str(), all);
    }
    MPI_Finalize();
    return status != 0 ? status : all != 0;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) {
    return gpushm::mpi_test::main_with_mpi(argc, argv);
}
