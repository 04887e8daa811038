// SPDX-License-Identifier: BSD-3-Clause
// Windows: four kinds x all operations x types with bounds, gaps, MPI_BOTTOM and zero counts x four
// kinds of epochs. Each rank accesses the window of the next one only, so that each result is
// determined. What is expected is computed by MPI_Pack and MPI_Unpack in host memory. Also with
// windows and buffers in GPU memory.
#include "cuda_driver.hpp"
#include "host_programs.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr int kInts = 96;     // of a buffer, and of a rank's part of a window
constexpr int kMiddle = 32;   // where types begin: some have elements before their address
constexpr int kElements = 8;  // of every type that has any

using Values = std::array<int, kInts>;

enum class Operation {
    put,
    get,
    accumulate,
    get_accumulate,
    rput,
    rget,
    raccumulate,
    rget_accumulate
};
enum class Epoch { fence, lock, lock_all, post };

constexpr const char *kOperationNames[] = {"Put",  "Get",  "Accumulate",  "Get_accumulate",
                                           "Rput", "Rget", "Raccumulate", "Rget_accumulate"};
constexpr const char *kEpochNames[] = {"fence", "lock", "lock_all", "post"};

// The driver, where the memory is not the host's.
std::unique_ptr<CudaDriver> driver_of(MemoryKind kind) {
    if (kind == MemoryKind::host) {
        return nullptr;
    }
    std::string reason;
    std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr) {
        throw std::runtime_error(reason);
    }
    driver->use_device(0);
    return driver;
}

// As many elements as Values, of a kind of memory; or what somebody else has allocated.
class Memory {
public:
    Memory(CudaDriver *driver, MemoryKind kind) : driver_(driver), kind_(kind) {
        ints_ = driver != nullptr ? static_cast<int *>(driver->allocate(kind, sizeof(Values)))
                                  : own_.data();
    }
    explicit Memory(int *ints) : ints_(ints) {}
    ~Memory() {
        if (driver_ != nullptr) {
            driver_->release(kind_, ints_);
        }
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    int *ints() const { return ints_; }
    void set(const Values &values) {
        if (driver_ != nullptr) {
            driver_->write(ints_, values.data(), sizeof(values));
        } else {
            memcpy(ints_, values.data(), sizeof(values));
        }
    }
    Values get() const {
        Values values;
        if (driver_ != nullptr) {
            driver_->read(values.data(), ints_, sizeof(values));
        } else {
            memcpy(values.data(), ints_, sizeof(values));
        }
        return values;
    }

private:
    CudaDriver *driver_ = nullptr;
    MemoryKind kind_ = MemoryKind::host;
    Values own_{};
    int *ints_;
};

// A type with its count. Its address is MPI_BOTTOM where it is absolute.
struct Elements {
    const char *name;
    MPI_Datatype type;
    int count;
    bool is_absolute;
};

Values filled(int rank, int purpose) {
    Values values;
    std::iota(values.begin(), values.end(), 100000 * (rank + 1) + 1000 * purpose);
    return values;
}

MPI_Datatype committed(MPI_Datatype type) {
    MPI_Type_commit(&type);
    return type;
}

MPI_Datatype at_bytes(const std::vector<int> &lengths, const std::vector<MPI_Aint> &displacements) {
    MPI_Datatype type;
    MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), displacements.data(),
                             MPI_INT, &type);
    return committed(type);
}

MPI_Datatype resized(MPI_Datatype of, MPI_Aint lower, MPI_Aint extent) {
    MPI_Datatype type;
    MPI_Type_create_resized(of, lower, extent, &type);
    return committed(type);
}

constexpr MPI_Aint bytes(int ints) {
    return ints * static_cast<MPI_Aint>(sizeof(int));
}

// Types of a window's part: as the others, without absolute addresses.
std::vector<Elements> relative_elements() {
    MPI_Datatype gaps;
    MPI_Type_vector(4, 2, 3, MPI_INT, &gaps);
    return {
        {"contiguous", MPI_INT, kElements, false},
        {"bound", at_bytes({kElements}, {bytes(3)}), 1, false},
        {"negative bound", at_bytes({4}, {bytes(-5)}), 2, false},
        {"gaps", committed(gaps), 1, false},
        {"backward", at_bytes({2, 4, 2}, {bytes(11), bytes(4), bytes(-2)}), 1, false},
        {"extent", resized(MPI_INT, 0, bytes(3)), kElements, false},
    };
}

std::vector<Elements> origin_elements(int *middle) {
    MPI_Aint address;
    MPI_Get_address(middle, &address);
    std::vector<Elements> elements = relative_elements();
    elements.push_back({"bottom", at_bytes({kElements}, {address}), 1, true});
    elements.push_back({"bottom gaps", at_bytes({3, 5}, {address, address + bytes(7)}), 1, true});
    return elements;
}

std::vector<int> packed(const int *base, const Elements &elements) {
    std::vector<int> values(kElements);
    int position = 0;
    MPI_Pack(base, elements.count, elements.type, values.data(), static_cast<int>(bytes(kElements)),
             &position, MPI_COMM_SELF);
    values.resize(static_cast<size_t>(position) / sizeof(int));
    return values;
}

void unpack(const std::vector<int> &values, int *base, const Elements &elements) {
    int position = 0;
    if (values.empty()) {
        return;  // Open MPI refuses a null buffer
    }
    MPI_Unpack(values.data(), static_cast<int>(bytes(static_cast<int>(values.size()))), &position,
               base, elements.count, elements.type, MPI_COMM_SELF);
}

class Window {
public:
    // MPI_Win_allocate and MPI_Win_allocate_shared have host memory whatever the kind.
    Window(const std::string &how, CudaDriver *driver, MemoryKind kind, MPI_Comm comm)
        : comm_(comm) {
        MPI_Comm_rank(comm, &rank_);
        MPI_Comm_size(comm, &size_);
        MPI_Aint displacement = bytes(kMiddle);
        int *allocated = nullptr;
        if (how == "allocate") {
            MPI_Win_allocate(bytes(kInts), 1, MPI_INFO_NULL, comm, &allocated, &window_);
            memory_ = std::make_unique<Memory>(allocated);
        } else if (how == "shared") {
            MPI_Win_allocate_shared(bytes(kInts), 1, MPI_INFO_NULL, comm, &allocated, &window_);
            memory_ = std::make_unique<Memory>(allocated);
        } else if (how == "create") {
            memory_ = std::make_unique<Memory>(driver, kind);
            MPI_Win_create(memory_->ints(), bytes(kInts), 1, MPI_INFO_NULL, comm, &window_);
        } else {
            memory_ = std::make_unique<Memory>(driver, kind);
            MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window_);
            MPI_Win_attach(window_, memory_->ints(), bytes(kInts));
            MPI_Get_address(memory_->ints() + kMiddle, &displacement);
            is_dynamic_ = true;
        }
        displacements_.resize(static_cast<size_t>(size_));
        MPI_Allgather(&displacement, 1, MPI_AINT, displacements_.data(), 1, MPI_AINT, comm);
    }
    ~Window() {
        if (is_dynamic_) {
            MPI_Barrier(comm_);
            MPI_Win_detach(window_, memory_->ints());
        }
        MPI_Win_free(&window_);
    }
    Window(const Window &) = delete;
    Window &operator=(const Window &) = delete;

    void set(const Values &values) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank_, 0, window_);
        memory_->set(values);
        MPI_Win_unlock(rank_, window_);
        MPI_Barrier(comm_);
    }
    Values get() {
        MPI_Barrier(comm_);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank_, 0, window_);
        const Values values = memory_->get();
        MPI_Win_unlock(rank_, window_);
        return values;
    }

    MPI_Win handle() const { return window_; }
    MPI_Comm comm() const { return comm_; }
    int rank() const { return rank_; }
    int next() const { return (rank_ + 1) % size_; }
    int previous() const { return (rank_ + size_ - 1) % size_; }
    MPI_Aint displacement() const { return displacements_[static_cast<size_t>(next())]; }

private:
    MPI_Comm comm_;
    MPI_Win window_ = MPI_WIN_NULL;
    int rank_ = 0;
    int size_ = 0;
    bool is_dynamic_ = false;
    std::unique_ptr<Memory> memory_;
    std::vector<MPI_Aint> displacements_;
};

MPI_Group group_of(MPI_Comm comm, int rank) {
    MPI_Group all;
    MPI_Group one;
    MPI_Comm_group(comm, &all);
    MPI_Group_incl(all, 1, &rank, &one);
    MPI_Group_free(&all);
    return one;
}

void begin(const Window &window, Epoch epoch) {
    MPI_Group group;
    switch (epoch) {
        case Epoch::fence:
            MPI_Win_fence(0, window.handle());
            break;
        case Epoch::lock:
            MPI_Win_lock(MPI_LOCK_SHARED, window.next(), 0, window.handle());
            break;
        case Epoch::lock_all:
            MPI_Win_lock_all(0, window.handle());
            break;
        case Epoch::post:
            group = group_of(window.comm(), window.previous());
            MPI_Win_post(group, 0, window.handle());
            MPI_Group_free(&group);
            group = group_of(window.comm(), window.next());
            MPI_Win_start(group, 0, window.handle());
            MPI_Group_free(&group);
            break;
    }
}

void end(const Window &window, Epoch epoch) {
    switch (epoch) {
        case Epoch::fence:
            MPI_Win_fence(0, window.handle());
            break;
        case Epoch::lock:
            MPI_Win_unlock(window.next(), window.handle());
            break;
        case Epoch::lock_all:
            MPI_Win_flush(window.next(), window.handle());
            MPI_Win_unlock_all(window.handle());
            break;
        case Epoch::post:
            MPI_Win_complete(window.handle());
            MPI_Win_wait(window.handle());
            break;
    }
}

bool needs_request(Operation operation) {
    return operation >= Operation::rput;
}
bool reads(Operation operation) {
    return operation == Operation::get || operation == Operation::rget ||
           operation == Operation::get_accumulate || operation == Operation::rget_accumulate;
}
bool writes(Operation operation) {
    return operation != Operation::get && operation != Operation::rget;
}
bool reduces(Operation operation) {
    return writes(operation) && operation != Operation::put && operation != Operation::rput;
}

struct Trial {
    Operation operation;
    Epoch epoch;
    const Elements &origin;
    const Elements &target;
    MPI_Op op;
};

// `send` and `receive`: addresses of the origin's and the result's elements.
void start(const Trial &trial, const Window &window, const void *send, void *receive,
           const Elements &result) {
    const Elements &origin = trial.origin;
    const Elements &target = trial.target;
    const int rank = window.next();
    const MPI_Aint displacement = window.displacement();
    const MPI_Win handle = window.handle();
    MPI_Request request = MPI_REQUEST_NULL;
    switch (trial.operation) {
        case Operation::put:
            MPI_Put(send, origin.count, origin.type, rank, displacement, target.count, target.type,
                    handle);
            break;
        case Operation::get:
            MPI_Get(receive, result.count, result.type, rank, displacement, target.count,
                    target.type, handle);
            break;
        case Operation::accumulate:
            MPI_Accumulate(send, origin.count, origin.type, rank, displacement, target.count,
                           target.type, trial.op, handle);
            break;
        case Operation::get_accumulate:
            MPI_Get_accumulate(send, origin.count, origin.type, receive, result.count, result.type,
                               rank, displacement, target.count, target.type, trial.op, handle);
            break;
        case Operation::rput:
            MPI_Rput(send, origin.count, origin.type, rank, displacement, target.count, target.type,
                     handle, &request);
            break;
        case Operation::rget:
            MPI_Rget(receive, result.count, result.type, rank, displacement, target.count,
                     target.type, handle, &request);
            break;
        case Operation::raccumulate:
            MPI_Raccumulate(send, origin.count, origin.type, rank, displacement, target.count,
                            target.type, trial.op, handle, &request);
            break;
        case Operation::rget_accumulate:
            MPI_Rget_accumulate(send, origin.count, origin.type, receive, result.count, result.type,
                                rank, displacement, target.count, target.type, trial.op, handle,
                                &request);
            break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// What is in the window of a rank whose elements were `before` when `values` have come.
std::vector<int> combined(const Trial &trial, std::vector<int> before,
                          const std::vector<int> &values) {
    if (trial.op == MPI_NO_OP) {
        return before;
    }
    for (size_t i = 0; i < values.size(); i++) {
        before[i] =
            reduces(trial.operation) && trial.op == MPI_SUM ? before[i] + values[i] : values[i];
    }
    return before;
}

// A buffer of the program, with the same elements in it and in a model of it in host memory.
struct Buffer {
    Buffer(CudaDriver *driver, MemoryKind kind)
        : memory(driver, kind),
          elements(origin_elements(memory.ints() + kMiddle)),
          model_elements(origin_elements(model.data() + kMiddle)) {}

    static int *address(const Elements &of, int *ints) {
        return of.is_absolute ? static_cast<int *>(MPI_BOTTOM) : ints + kMiddle;
    }

    Memory memory;
    Values model{};
    std::vector<Elements> elements;
    std::vector<Elements> model_elements;
};

// Of `origin` and `result` the elements number `i`; those of `trial` are these of `origin`, or
// none.
bool is_right(const Trial &trial, Window &window, Buffer &origin, Buffer &result, size_t i) {
    const bool is_empty = trial.origin.count == 0;
    const Elements &into = is_empty ? trial.origin : result.elements[i];
    const int rank = window.rank();
    origin.memory.set(filled(rank, 1));
    result.memory.set(filled(rank, 2));
    window.set(filled(rank, 3));
    begin(window, trial.epoch);
    start(trial, window, Buffer::address(trial.origin, origin.memory.ints()),
          Buffer::address(into, result.memory.ints()), into);
    end(window, trial.epoch);

    Values wanted_window = filled(rank, 3);
    if (writes(trial.operation) && !is_empty) {
        // The previous rank's elements, at the addresses that this rank's types name.
        origin.model = filled(window.previous(), 1);
        const Elements &from = origin.model_elements[i];
        const std::vector<int> before = packed(wanted_window.data() + kMiddle, trial.target);
        unpack(combined(trial, before, packed(Buffer::address(from, origin.model.data()), from)),
               wanted_window.data() + kMiddle, trial.target);
    }
    result.model = filled(rank, 2);
    if (reads(trial.operation) && !is_empty) {
        const Values target = filled(window.next(), 3);
        const Elements &model = result.model_elements[i];
        unpack(packed(target.data() + kMiddle, trial.target),
               Buffer::address(model, result.model.data()), model);
    }
    return window.get() == wanted_window && result.memory.get() == result.model &&
           origin.memory.get() == filled(rank, 1);
}

bool is_possible(Operation operation, Epoch epoch, MPI_Op op) {
    if (needs_request(operation) && (epoch == Epoch::fence || epoch == Epoch::post)) {
        return false;
    }
    return reduces(operation) ? op != MPI_NO_OP || reads(operation) : op == MPI_REPLACE;
}

}  // namespace

void run_windows(const std::string &how, MemoryKind kind) {
    const std::unique_ptr<CudaDriver> driver = driver_of(kind);
    Window window(how, driver.get(), kind, MPI_COMM_WORLD);
    Buffer origin(driver.get(), kind);
    Buffer result(driver.get(), kind);
    const std::vector<Elements> targets = relative_elements();
    const Elements none{"zero", MPI_INT, 0, false};
    for (int operation = 0; operation < 8; operation++) {
        for (int epoch = 0; epoch < 4; epoch++) {
            for (MPI_Op op : {MPI_SUM, MPI_REPLACE, MPI_NO_OP}) {
                const auto trial = [&](const Elements &from, const Elements &to) {
                    return Trial{static_cast<Operation>(operation), static_cast<Epoch>(epoch), from,
                                 to, op};
                };
                if (!is_possible(static_cast<Operation>(operation), static_cast<Epoch>(epoch),
                                 op)) {
                    continue;
                }
                const std::string name = how + " " + kOperationNames[operation] + " " +
                                         kEpochNames[epoch] +
                                         (op == MPI_SUM     ? " sum"
                                          : op == MPI_NO_OP ? " no_op"
                                                            : "");
                for (size_t i = 0; i < origin.elements.size(); i++) {
                    for (const Elements &target : targets) {
                        report(
                            MPI_COMM_WORLD,
                            name + ", " + origin.elements[i].name + " to " + target.name,
                            is_right(trial(origin.elements[i], target), window, origin, result, i));
                    }
                }
                report(MPI_COMM_WORLD, name + ", zero",
                       is_right(trial(none, none), window, origin, result, 0));
            }
        }
    }
}

}  // namespace gpushm::mpi_test
