// SPDX-License-Identifier: BSD-3-Clause
// Accumulates whose types have bounds, at MPI_BOTTOM, of several elements, of nothing.
#include "watchdog.hpp"
#include "windows_support.hpp"

#include <mpi.h>

#include <string>
#include <utility>
#include <vector>

namespace gpushm::mpi_test {
namespace {

enum class Call { accumulate, get_accumulate, raccumulate, rget_accumulate };
constexpr std::pair<Call, const char *> kCalls[] = {{Call::accumulate, "MPI_Accumulate"},
                                                    {Call::get_accumulate, "MPI_Get_accumulate"},
                                                    {Call::raccumulate, "MPI_Raccumulate"},
                                                    {Call::rget_accumulate, "MPI_Rget_accumulate"}};

bool fetches(Call call) {
    return call == Call::get_accumulate || call == Call::rget_accumulate;
}

// What is accumulated where.
struct Access {
    const void *origin;
    int origin_count;
    MPI_Datatype origin_type;
    int target_count;
    MPI_Datatype target_type;
};

// Adds to the window of the right neighbour; what was there before goes to `result`.
void add(Call call, const Access &access, int *result, int result_count, MPI_Win window) {
    const int target = right_neighbor();
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
    switch (call) {
        case Call::accumulate:
            MPI_Accumulate(access.origin, access.origin_count, access.origin_type, target, 0,
                           access.target_count, access.target_type, MPI_SUM, window);
            break;
        case Call::get_accumulate:
            MPI_Get_accumulate(access.origin, access.origin_count, access.origin_type, result,
                               result_count, MPI_INT, target, 0, access.target_count,
                               access.target_type, MPI_SUM, window);
            break;
        case Call::raccumulate:
            MPI_Raccumulate(access.origin, access.origin_count, access.origin_type, target, 0,
                            access.target_count, access.target_type, MPI_SUM, window, &request);
            break;
        case Call::rget_accumulate:
            MPI_Rget_accumulate(access.origin, access.origin_count, access.origin_type, result,
                                result_count, MPI_INT, target, 0, access.target_count,
                                access.target_type, MPI_SUM, window, &request);
            break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock(target, window);
    MPI_Barrier(MPI_COMM_WORLD);
}

// An origin of ints, and which of them are accumulated.
struct Origin {
    const char *name;
    std::vector<MPI_Aint> displacements;  // bytes, from `begin`
    int count;                            // of the type
    int begin;                            // the int that the address is of
    std::vector<int> accumulated;         // the ints, in order
};

const std::vector<Origin> &origins() {
    static const std::vector<Origin> list = {
        {"a lower bound", {8, 12}, 1, 0, {2, 3}},
        {"a negative lower bound", {-8, -4}, 1, 4, {2, 3}},
        {"several elements with a lower bound", {8, 12}, 2, 0, {2, 3, 4, 5}},
        {"a gap", {4, 12}, 1, 0, {1, 3}},
        {"the other way around", {12, 8}, 1, 0, {3, 2}},
        {"no elements", {8, 12}, 0, 0, {}}};
    return list;
}

// The target's ints lie one apart where `apart`, in a type of its own for each two of them.
void test_bounds_of(const Place &place, Call call, const char *name, const Origin &origin,
                    bool at_bottom, bool apart) {
    const std::string what = std::string(name) + " of " + origin.name +
                             (at_bottom ? " at MPI_BOTTOM" : "") + (apart ? ", apart, " : ", ") +
                             place.name();
    note("%s", what.c_str());
    const int ints = static_cast<int>(origin.accumulated.size());
    Ints values(place.driver, place.origin, numbers(8, 10 * (own_rank + 1)));
    Ints memory(place.driver, place.window, numbers(8, 1000));
    Ints result(place.driver, place.origin, std::vector<int>(8, kPad));
    const Window window(memory);
    MPI_Aint address = 0;
    MPI_Get_address(values.data() + origin.begin, &address);
    std::vector<MPI_Aint> displacements = origin.displacements;
    for (MPI_Aint &displacement : displacements) {
        displacement += at_bottom ? address : 0;
    }
    const Type type(displacements);
    const Type every_other(2, 2);
    MPI_Datatype resized = MPI_DATATYPE_NULL;
    MPI_Type_create_resized(every_other, 0, 16, &resized);
    MPI_Type_commit(&resized);
    const void *const from = at_bottom ? MPI_BOTTOM : values.data() + origin.begin;
    const Access access{from, origin.count, type, apart ? ints / 2 : ints,
                        apart ? resized : MPI_INT};
    add(call, access, result.data(), ints, window);
    MPI_Type_free(&resized);

    std::vector<int> wanted = numbers(8, 1000);
    std::vector<int> fetched(8, kPad);
    for (int i = 0; i < ints; ++i) {
        const int place_in_window = apart ? 2 * i : i;
        fetched[i] = fetches(call) ? wanted[place_in_window] : kPad;
        wanted[place_in_window] += 10 * (left_neighbor() + 1) + origin.accumulated[i];
    }
    check(memory.values() == wanted, what);
    check(result.values() == fetched, what + ", what was fetched");
}

// What a request has fetched is there when MPI_Wait returns.
void test_fetched_by_request(const Place &place) {
    constexpr int kInts = 1 << 18;
    const std::string what = "MPI_Rget_accumulate of MPI_NO_OP, " + place.name();
    note("%s", what.c_str());
    Ints memory(place.driver, place.window, numbers(kInts, 100 * own_rank));
    Ints result(place.driver, place.origin, std::vector<int>(kInts, kPad));
    const Window window(memory);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Win_lock_all(0, window);
    MPI_Rget_accumulate(nullptr, 0, MPI_INT, result.data(), kInts, MPI_INT, right_neighbor(), 0,
                        kInts, MPI_INT, MPI_NO_OP, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(result.values() == numbers(kInts, 100 * right_neighbor()), what);
    MPI_Win_unlock_all(window);
}

}  // namespace

void test_bounds(const Place &place) {
    test_fetched_by_request(place);
    for (const auto &[call, name] : kCalls) {
        for (const Origin &origin : origins()) {
            for (bool at_bottom : {false, true}) {
                for (bool apart : {false, true}) {
                    test_bounds_of(place, call, name, origin, at_bottom, apart);
                }
            }
        }
    }
}

}  // namespace gpushm::mpi_test
