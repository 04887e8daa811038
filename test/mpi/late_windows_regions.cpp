// SPDX-License-Identifier: BSD-3-Clause
// Memory that is attached to dynamic windows and detached: each rank accesses that of its right
// neighbour.
#include "watchdog.hpp"
#include "late_windows_memory.hpp"

#include <mpi.h>

namespace gpushm::mpi_test::late_windows {
namespace {

constexpr int kRegions = 70;  // more than osc/ucx has room for
constexpr int kRounds = 3;
constexpr int kChanges = 300;

enum class Epoch { fence, lock, lock_all, post_start };
constexpr Epoch kEpochs[] = {Epoch::fence, Epoch::lock, Epoch::lock_all, Epoch::post_start};

enum class Operation { put, get, accumulate, get_accumulate, fetch_and_op, compare_and_swap };
constexpr int kOperations = 6;

struct Ring {
    int rank;
    int right;
    int left;
};

Ring make_ring() {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return {rank, (rank + 1) % size, (rank + size - 1) % size};
}

MPI_Win make_window() {
    MPI_Win window = MPI_WIN_NULL;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    return window;
}

// The address of the right neighbour's memory.
MPI_Aint exchange_address(const Ring &ring, const void *memory) {
    MPI_Aint own = 0;
    MPI_Aint neighbors = 0;
    MPI_Get_address(memory, &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, ring.left, 0, &neighbors, 1, MPI_AINT, ring.right, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return neighbors;
}

// ---------------------------------------------------------------- epochs

void post_and_start(const Ring &ring, MPI_Win window) {
    MPI_Group all;
    MPI_Group group;
    MPI_Win_get_group(window, &all);
    MPI_Group_incl(all, 1, &ring.left, &group);
    MPI_Win_post(group, 0, window);
    MPI_Group_free(&group);
    MPI_Group_incl(all, 1, &ring.right, &group);
    MPI_Win_start(group, 0, window);
    MPI_Group_free(&group);
    MPI_Group_free(&all);
}

void begin(Epoch epoch, const Ring &ring, MPI_Win window) {
    switch (epoch) {
        case Epoch::fence:
            MPI_Win_fence(0, window);
            break;
        case Epoch::lock:
            MPI_Win_lock(MPI_LOCK_SHARED, ring.right, 0, window);
            break;
        case Epoch::lock_all:
            MPI_Win_lock_all(0, window);
            break;
        case Epoch::post_start:
            post_and_start(ring, window);
            break;
    }
}

// The caller's operations and those on the caller are complete, and it may load what they stored.
void end(Epoch epoch, const Ring &ring, MPI_Win window) {
    switch (epoch) {
        case Epoch::fence:
            MPI_Win_fence(0, window);
            return;
        case Epoch::lock:
            MPI_Win_unlock(ring.right, window);
            break;
        case Epoch::lock_all:
            MPI_Win_flush(ring.right, window);
            MPI_Win_unlock_all(window);
            break;
        case Epoch::post_start:
            MPI_Win_complete(window);
            MPI_Win_wait(window);
            return;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, ring.rank, 0, window);
    MPI_Win_unlock(ring.rank, window);
}

bool is_passive(Epoch epoch) {
    return epoch == Epoch::lock || epoch == Epoch::lock_all;
}

// ---------------------------------------------------------------- one region and the operation on
// it

Value before(int rank, int round, int region, size_t index) {
    return 100000000LL * (rank + 1) + 1000000 * round + 1000 * region + static_cast<Value>(index);
}

Value sent(int rank, int round, int region, size_t index) {
    return 3 * before(rank, round, region, index) + 1;
}

template <typename Function>
std::vector<Value> values(size_t count, Function function) {
    std::vector<Value> list;
    for (size_t i = 0; i < count; ++i) {
        list.push_back(function(i));
    }
    return list;
}

struct Region {
    Memory memory;
    Memory origin;
    Memory compare;
    Memory result;
    MPI_Aint target;
    Operation operation;
    bool with_request;
};

Region make_region(CudaDriver &driver, const Kinds &kinds, const Ring &ring, int round,
                   int number) {
    const size_t count = 1 + number * 7 % 50;
    const auto kind = [&](int shift) { return kinds[(number + shift) % kinds.size()]; };
    Region region{Memory(driver, kind(0), count),
                  Memory(driver, kind(number / 4), count),
                  Memory(driver, kind(1), count),
                  Memory(driver, kind(number / 16), count),
                  0,
                  static_cast<Operation>(number % kOperations),
                  number / kOperations % 2 == 1};
    region.memory.write(
        values(count, [&](size_t i) { return before(ring.rank, round, number, i); }));
    region.origin.write(values(count, [&](size_t i) { return sent(ring.rank, round, number, i); }));
    region.compare.write(
        values(count, [&](size_t i) { return before(ring.right, round, number, i); }));
    return region;
}

void access_with_request(const Region &region, int rank, MPI_Win window) {
    const int count = region.memory.count();
    void *const origin = region.origin.address();
    void *const result = region.result.address();
    MPI_Request request = MPI_REQUEST_NULL;
    switch (region.operation) {
        case Operation::put:
            MPI_Rput(origin, count, MPI_INT64_T, rank, region.target, count, MPI_INT64_T, window,
                     &request);
            break;
        case Operation::get:
            MPI_Rget(result, count, MPI_INT64_T, rank, region.target, count, MPI_INT64_T, window,
                     &request);
            break;
        case Operation::accumulate:
            MPI_Raccumulate(origin, count, MPI_INT64_T, rank, region.target, count, MPI_INT64_T,
                            MPI_SUM, window, &request);
            break;
        default:
            MPI_Rget_accumulate(origin, count, MPI_INT64_T, result, count, MPI_INT64_T, rank,
                                region.target, count, MPI_INT64_T, MPI_SUM, window, &request);
            break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void access_plainly(const Region &region, int rank, MPI_Win window) {
    const int count = region.memory.count();
    void *const origin = region.origin.address();
    void *const result = region.result.address();
    const MPI_Aint last = region.target + (count - 1) * static_cast<MPI_Aint>(sizeof(Value));
    switch (region.operation) {
        case Operation::put:
            MPI_Put(origin, count, MPI_INT64_T, rank, region.target, count, MPI_INT64_T, window);
            break;
        case Operation::get:
            MPI_Get(result, count, MPI_INT64_T, rank, region.target, count, MPI_INT64_T, window);
            break;
        case Operation::accumulate:
            MPI_Accumulate(origin, count, MPI_INT64_T, rank, region.target, count, MPI_INT64_T,
                           MPI_SUM, window);
            break;
        case Operation::get_accumulate:
            MPI_Get_accumulate(origin, count, MPI_INT64_T, result, count, MPI_INT64_T, rank,
                               region.target, count, MPI_INT64_T, MPI_SUM, window);
            break;
        case Operation::fetch_and_op:
            MPI_Fetch_and_op(region.origin.address(count - 1), region.result.address(count - 1),
                             MPI_INT64_T, rank, last, MPI_SUM, window);
            break;
        case Operation::compare_and_swap:
            MPI_Compare_and_swap(region.origin.address(count - 1),
                                 region.compare.address(count - 1),
                                 region.result.address(count - 1), MPI_INT64_T, rank, last, window);
            break;
    }
}

void access(const Region &region, Epoch epoch, int rank, MPI_Win window) {
    const bool has_form = region.operation <= Operation::get_accumulate;
    if (region.with_request && has_form && is_passive(epoch)) {
        access_with_request(region, rank, window);
    } else {
        access_plainly(region, rank, window);
    }
}

// What the left neighbour's operation leaves at `index`, and what the own one fetches.
Value after(Operation operation, bool is_last, Value old, Value arrived) {
    switch (operation) {
        case Operation::put:
            return arrived;
        case Operation::get:
            return old;
        case Operation::accumulate:
        case Operation::get_accumulate:
            return old + arrived;
        case Operation::fetch_and_op:
            return is_last ? old + arrived : old;
        case Operation::compare_and_swap:
            return is_last ? arrived : old;
    }
    return 0;
}

Value fetched(Operation operation, bool is_last, Value old) {
    switch (operation) {
        case Operation::put:
        case Operation::accumulate:
            return -1;
        case Operation::get:
        case Operation::get_accumulate:
            return old;
        default:
            return is_last ? old : -1;
    }
}

void check(const Region &region, const Ring &ring, Epoch epoch, int round, int number,
           Findings &findings) {
    const size_t count = static_cast<size_t>(region.memory.count());
    const std::string where = "epoch " + std::to_string(static_cast<int>(epoch)) + " round " +
                              std::to_string(round) + " region " + std::to_string(number) +
                              ", operation " + std::to_string(static_cast<int>(region.operation));
    findings.expect(where + ", memory", region.memory.read(), values(count, [&](size_t i) {
                        return after(region.operation, i + 1 == count,
                                     before(ring.rank, round, number, i),
                                     sent(ring.left, round, number, i));
                    }));
    findings.expect(where + ", result", region.result.read(), values(count, [&](size_t i) {
                        return fetched(region.operation, i + 1 == count,
                                       before(ring.right, round, number, i));
                    }));
}

// ---------------------------------------------------------------- tests

// From the first or from the last one on; not in the last round, so that MPI_Win_free finds them
// attached.
void detach(const std::vector<Region> &regions, int round, MPI_Win window) {
    for (size_t i = 0; i < regions.size() && round + 1 < kRounds; ++i) {
        const size_t which = round == 0 ? i : regions.size() - 1 - i;
        MPI_Win_detach(window, regions[which].memory.address());
    }
}

void run_round(CudaDriver &driver, const Kinds &kinds, const Ring &ring, Epoch epoch, int round,
               MPI_Win *window, Findings &findings) {
    std::vector<Region> regions;
    for (int number = 0; number < kRegions; ++number) {
        regions.push_back(make_region(driver, kinds, ring, round, number));
        Region &region = regions.back();
        MPI_Win_attach(*window, region.memory.address(),
                       static_cast<MPI_Aint>(region.memory.bytes()));
        region.target = exchange_address(ring, region.memory.address());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    begin(epoch, ring, *window);
    for (const Region &region : regions) {
        access(region, epoch, ring.right, *window);
    }
    end(epoch, ring, *window);
    for (int number = 0; number < kRegions; ++number) {
        check(regions[number], ring, epoch, round, number, findings);
    }
    detach(regions, round, *window);
    if (round + 1 == kRounds) {
        MPI_Win_free(window);
    }
}

void test_all_operations(CudaDriver &driver, const Kinds &kinds, const Ring &ring,
                         Findings &findings) {
    for (Epoch epoch : kEpochs) {
        MPI_Win window = make_window();
        for (int round = 0; round < kRounds; ++round) {
            note("epoch %d, round %d", static_cast<int>(epoch), round);
            run_round(driver, kinds, ring, epoch, round, &window, findings);
        }
    }
}

// One region comes and goes while others stay, and operations on those are under way.
void test_changes(CudaDriver &driver, const Kinds &kinds, const Ring &ring, Findings &findings) {
    note("one region comes and goes");
    MPI_Win window = make_window();
    std::vector<Memory> stay;
    std::vector<MPI_Aint> targets;
    for (int number = 0; number < kRegions / 2; ++number) {
        stay.emplace_back(driver, kinds[number % kinds.size()], kChanges);
        MPI_Win_attach(window, stay.back().address(), static_cast<MPI_Aint>(stay.back().bytes()));
        targets.push_back(exchange_address(ring, stay.back().address()));
    }
    MPI_Win_lock_all(0, window);
    for (int change = 0; change < kChanges; ++change) {
        Memory comes(driver, kinds[change % kinds.size()], 1);
        MPI_Win_attach(window, comes.address(), sizeof(Value));
        const MPI_Aint target = exchange_address(ring, comes.address());
        const Value value = before(ring.rank, change, 0, 0);
        const MPI_Aint displacement = change * static_cast<MPI_Aint>(sizeof(Value));
        MPI_Put(&value, 1, MPI_INT64_T, ring.right, targets[change % targets.size()] + displacement,
                1, MPI_INT64_T, window);
        MPI_Put(&value, 1, MPI_INT64_T, ring.right, target, 1, MPI_INT64_T, window);
        MPI_Win_flush(ring.right, window);
        MPI_Barrier(MPI_COMM_WORLD);
        findings.expect("change " + std::to_string(change), comes.read(),
                        {before(ring.left, change, 0, 0)});
        findings.expect(
            stay[change % stay.size()].read()[change] == before(ring.left, change, 0, 0),
            "what stays, at change " + std::to_string(change));
        MPI_Win_detach(window, comes.address());
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

// The last byte of a region, memory that was attached in two parts, none at all, and what was never
// attached.
void test_bounds(CudaDriver &driver, const Kinds &kinds, const Ring &ring, Findings &findings) {
    note("bounds");
    MPI_Win window = make_window();
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    Memory memory(driver, kinds.front(), 4, 0);
    const MPI_Aint half = 2 * sizeof(Value);
    findings.expect(MPI_Win_attach(window, memory.address(), 0) == MPI_SUCCESS,
                    "attaching no bytes");
    findings.expect(MPI_Win_detach(window, memory.address()) == MPI_SUCCESS, "detaching no bytes");
    MPI_Win_attach(window, memory.address(0), half);
    MPI_Win_attach(window, memory.address(2), half);
    const MPI_Aint target = exchange_address(ring, memory.address());
    const std::vector<Value> all = {1, 2, 3, 4};
    const char last = 0x7f;
    MPI_Win_fence(0, window);
    MPI_Put(all.data(), 4, MPI_INT64_T, ring.right, target, 4, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    MPI_Put(&last, 1, MPI_BYTE, ring.right, target + 2 * half - 1, 1, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    findings.expect("two parts", memory.read(), {1, 2, 3, 0x7f00000000000004});
    findings.expect(MPI_Win_detach(window, memory.address(1)) != MPI_SUCCESS,
                    "detaching what is not attached");
    MPI_Win_detach(window, memory.address(2));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    findings.expect(
        MPI_Put(&last, 1, MPI_BYTE, ring.right, target + half, 1, MPI_BYTE, window) != MPI_SUCCESS,
        "an access to what is not attached any more");
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

}  // namespace

void test_regions(CudaDriver &driver, const Kinds &kinds, Findings &findings) {
    const Ring ring = make_ring();
    test_all_operations(driver, kinds, ring, findings);
    test_changes(driver, kinds, ring, findings);
    test_bounds(driver, kinds, ring, findings);
}

}  // namespace gpushm::mpi_test::late_windows
