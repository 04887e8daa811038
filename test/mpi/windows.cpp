// SPDX-License-Identifier: BSD-3-Clause
// Windows whose users do what Open MPI's components for windows have got wrong, with buffers of each kind of memory, and
// without CUDA at all:
//
//   windows bounds     accumulates of types with bounds, at MPI_BOTTOM, of several elements, of nothing
//   windows polling    a rank that looks at its own memory until another one has changed it
//   windows blocks     types of many blocks
//   windows late       buffers in GPU memory, which is used only after the window was made
//
// Each for two ranks or more; --no-cuda: host memory only, and nothing of CUDA is opened.
#include "cuda_driver.hpp"
#include "watchdog.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr unsigned kSeconds = 60;
constexpr int kPad = -7;  // what lies between the elements

int own_rank = 0;
int rank_count = 0;
int failures = 0;

int right_neighbor() { return (own_rank + 1) % rank_count; }
int left_neighbor() { return (own_rank + rank_count - 1) % rank_count; }

void check(bool is_right, const std::string& what)
{
    if (!is_right) {
        ++failures;
        std::printf("windows: rank %d: WRONG: %s\n", own_rank, what.c_str());
    }
}

// Ints in memory of some kind.
class Ints {
public:
    Ints(CudaDriver* driver, MemoryKind kind, std::vector<int> values) :
        driver_(driver), kind_(kind), values_(std::move(values))
    {
        memory_ = kind_ == MemoryKind::host ? values_.data()
                                            : static_cast<int*>(driver_->allocate(kind_, bytes()));
        if (kind_ != MemoryKind::host) {
            driver_->write(memory_, values_.data(), bytes());
        }
    }
    ~Ints()
    {
        if (kind_ != MemoryKind::host) {
            driver_->release(kind_, memory_);
        }
    }
    Ints(const Ints&) = delete;
    Ints& operator=(const Ints&) = delete;

    int* data() { return memory_; }
    MPI_Aint bytes() const { return static_cast<MPI_Aint>(values_.size() * sizeof(int)); }

    const std::vector<int>& values()
    {
        if (kind_ != MemoryKind::host) {
            driver_->read(values_.data(), memory_, bytes());
        }
        return values_;
    }

private:
    CudaDriver* const driver_;
    const MemoryKind kind_;
    std::vector<int> values_;
    int* memory_ = nullptr;
};

// Where buffers and windows of a test lie.
struct Place {
    CudaDriver* driver;
    MemoryKind origin;
    MemoryKind window;

    std::string name() const { return std::string(to_string(origin)) + " to " + to_string(window); }
};

class Window {
public:
    explicit Window(Ints& memory)
    {
        MPI_Win_create(memory.data(), memory.bytes(), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                       &window_);
    }
    ~Window() { MPI_Win_free(&window_); }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    operator MPI_Win() const { return window_; }

private:
    MPI_Win window_ = MPI_WIN_NULL;
};

class Type {
public:
    // Ints at these places, in this order.
    explicit Type(const std::vector<MPI_Aint>& byte_displacements)
    {
        MPI_Type_create_hindexed_block(static_cast<int>(byte_displacements.size()), 1,
                                       byte_displacements.data(), MPI_INT, &type_);
        MPI_Type_commit(&type_);
    }
    Type(int blocks, int stride)
    {
        MPI_Type_vector(blocks, 1, stride, MPI_INT, &type_);
        MPI_Type_commit(&type_);
    }
    ~Type() { MPI_Type_free(&type_); }
    Type(const Type&) = delete;
    Type& operator=(const Type&) = delete;
    operator MPI_Datatype() const { return type_; }

private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

std::vector<int> numbers(size_t count, int first)
{
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

enum class Call { accumulate, get_accumulate, raccumulate, rget_accumulate };
constexpr std::pair<Call, const char*> kCalls[] = {{Call::accumulate, "MPI_Accumulate"},
                                                   {Call::get_accumulate, "MPI_Get_accumulate"},
                                                   {Call::raccumulate, "MPI_Raccumulate"},
                                                   {Call::rget_accumulate, "MPI_Rget_accumulate"}};

bool fetches(Call call) { return call == Call::get_accumulate || call == Call::rget_accumulate; }

// What is accumulated where.
struct Access {
    const void* origin;
    int origin_count;
    MPI_Datatype origin_type;
    int target_count;
    MPI_Datatype target_type;
};

// Adds to the window of the right neighbour; what was there before goes to `result`.
void add(Call call, const Access& access, int* result, int result_count, MPI_Win window)
{
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
    const char* name;
    std::vector<MPI_Aint> displacements;  // bytes, from `begin`
    int count;                            // of the type
    int begin;                            // the int that the address is of
    std::vector<int> accumulated;         // the ints, in order
};

const std::vector<Origin>& origins()
{
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
void test_bounds_of(const Place& place, Call call, const char* name, const Origin& origin,
                    bool at_bottom, bool apart)
{
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
    for (MPI_Aint& displacement : displacements) {
        displacement += at_bottom ? address : 0;
    }
    const Type type(displacements);
    const Type every_other(2, 2);
    MPI_Datatype resized = MPI_DATATYPE_NULL;
    MPI_Type_create_resized(every_other, 0, 16, &resized);
    MPI_Type_commit(&resized);
    const void* const from = at_bottom ? MPI_BOTTOM : values.data() + origin.begin;
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
void test_fetched_by_request(const Place& place)
{
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

void test_bounds(const Place& place)
{
    test_fetched_by_request(place);
    for (const auto& [call, name] : kCalls) {
        for (const Origin& origin : origins()) {
            for (bool at_bottom : {false, true}) {
                for (bool apart : {false, true}) {
                    test_bounds_of(place, call, name, origin, at_bottom, apart);
                }
            }
        }
    }
}

// ---------------------------------------------------------------- polling

// How a rank looks at an int of its own.
struct Look {
    const char* name;
    std::function<int(Ints& memory, Ints& result, MPI_Win)> look;
};

std::vector<Look> looks()
{
    const auto fetched = [](Ints& result, MPI_Win window) {
        MPI_Win_flush(own_rank, window);
        return result.values()[0];
    };
    return {{"MPI_Win_sync",
             [](Ints& memory, Ints&, MPI_Win window) {
                 MPI_Win_sync(window);
                 return memory.values()[0];
             }},
            {"MPI_Get",
             [fetched](Ints&, Ints& result, MPI_Win window) {
                 MPI_Get(result.data(), 1, MPI_INT, own_rank, 0, 1, MPI_INT, window);
                 return fetched(result, window);
             }},
            {"MPI_Rget",
             [](Ints&, Ints& result, MPI_Win window) {
                 MPI_Request request = MPI_REQUEST_NULL;
                 MPI_Rget(result.data(), 1, MPI_INT, own_rank, 0, 1, MPI_INT, window, &request);
                 MPI_Wait(&request, MPI_STATUS_IGNORE);
                 return result.values()[0];
             }},
            {"MPI_Fetch_and_op",
             [fetched](Ints&, Ints& result, MPI_Win window) {
                 MPI_Fetch_and_op(nullptr, result.data(), MPI_INT, own_rank, 0, MPI_NO_OP, window);
                 return fetched(result, window);
             }},
            {"MPI_Get_accumulate",
             [fetched](Ints&, Ints& result, MPI_Win window) {
                 MPI_Get_accumulate(nullptr, 0, MPI_INT, result.data(), 1, MPI_INT, own_rank, 0, 1,
                                    MPI_INT, MPI_NO_OP, window);
                 return fetched(result, window);
             }}};
}

// The first two ranks hand a number to and fro.
void test_polling(const Place& place)
{
    for (const Look& look : looks()) {
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

void test_transfer(const Place& place, Direction direction, int blocks, bool origin_apart,
                   bool target_apart)
{
    const char* const name = direction == Direction::put   ? "MPI_Put"
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
        int& place_of = wanted[static_cast<size_t>(i) * write_step];
        place_of = direction == Direction::accumulate ? kPad + value : value;
    }
    check((is_get ? local : memory).values() == wanted, what);
}

void test_blocks(const Place& place)
{
    constexpr int kBlocks = 4096;
    constexpr int kMany = 65536;
    for (Direction direction : {Direction::put, Direction::get, Direction::accumulate}) {
        test_transfer(place, direction, kBlocks, true, false);
        test_transfer(place, direction, kBlocks, false, true);
        const bool is_slowest = place.origin == MemoryKind::device && place.window == place.origin;
        test_transfer(place, direction, is_slowest ? kMany : kBlocks, true, true);
    }
}

// ---------------------------------------------------------------- GPU memory after all

// Puts and gets of `local`, which is GPU memory, in a window of host memory.
void exchange_late(CudaDriver& driver, MemoryKind kind, Ints& memory, MPI_Win window)
{
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
    for (int& value : sum) {
        value *= 2;
    }
    sum[1] = left[0];
    check(memory.values() == sum, "MPI_Accumulate late, " + name);
}

int test_late()
{
    Ints memory(nullptr, MemoryKind::host, std::vector<int>(1000, kPad));
    const Window window(memory);
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr) {
        std::printf("windows: skipped: %s\n", reason.c_str());
        return 1;
    }
    driver->use_device(own_rank % driver->device_count());
    for (MemoryKind kind : {MemoryKind::device, MemoryKind::managed}) {
        note("a window that was made before CUDA was used, %s", to_string(kind));
        exchange_late(*driver, kind, memory, window);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return 0;
}

int test_everywhere(void (*test)(const Place&), bool with_cuda)
{
    if (!with_cuda) {
        test({nullptr, MemoryKind::host, MemoryKind::host});
        return 0;
    }
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr) {
        std::printf("windows: skipped: %s\n", reason.c_str());
        return 1;
    }
    driver->use_device(own_rank % driver->device_count());
    using Kind = MemoryKind;
    for (const auto& [origin, window] : {std::pair(Kind::host, Kind::host),
                                         std::pair(Kind::device, Kind::device),
                                         std::pair(Kind::managed, Kind::managed),
                                         std::pair(Kind::device, Kind::host),
                                         std::pair(Kind::host, Kind::device)}) {
        test({driver.get(), origin, window});
    }
    return 0;
}

int run(const std::string& mode, bool with_cuda)
{
    if (mode == "bounds") {
        return test_everywhere(test_bounds, with_cuda);
    }
    if (mode == "polling") {
        return test_everywhere(test_polling, with_cuda);
    }
    if (mode == "blocks") {
        return test_everywhere(test_blocks, with_cuda);
    }
    if (mode == "late") {
        return test_late();
    }
    std::fprintf(stderr, "usage: windows bounds|polling|blocks|late [--no-cuda]\n");
    return 2;
}

int main_with_mpi(int argc, char** argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    start_watchdog(own_rank, kSeconds);
    const std::string mode = argc > 1 ? argv[1] : "";
    const bool with_cuda = argc < 3 || std::strcmp(argv[2], "--no-cuda") != 0;
    const int status = run(mode, with_cuda);
    stop_watchdog();
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (own_rank == 0 && status == 0) {
        std::printf("windows %s: %d failed\n", mode.c_str(), all);
    }
    MPI_Finalize();
    return status != 0 ? status : all != 0;
}

} // namespace
} // namespace gpushm::mpi_test

int main(int argc, char** argv)
{
    return gpushm::mpi_test::main_with_mpi(argc, argv);
}
