// SPDX-License-Identifier: BSD-3-Clause
// Operations of MPI on device memory during which calls of the CUDA driver fail. Two ranks; the
// driver must have the controls of simcuda.h. contrib/ci/driver_failures.sh runs it and judges.
//
//   driver_failures list FUNCTION...          prints a line for each trial
//   driver_failures run TRIALS FIRST REPORT   runs those of the file TRIALS, but the first FIRST,
//                                             and adds a line for each to the file REPORT
//   driver_failures returned                  what MPI returns where no copy can be made
//
// An error of MPI ends the job, with exit status 4: afterwards nothing is certain of MPI. Ranks
// that go on must have the right data. Exit status 3: a rank waits for ever (watchdog.hpp).
#include "cuda_driver.hpp"
#include "watchdog.hpp"

#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr int kRanks = 2;
constexpr int kFloats = 60000;  // 240 KB
constexpr int kShort = 100;
constexpr float kUntouched = -1;
constexpr int kSkipped = 77;
constexpr int kMpiError = 4;
constexpr unsigned kPatienceSeconds = 8;

// ---------------------------------------------------------------- operations

int rank = 0;

struct Buffers {
    void *source;
    void *destination;
};

// What rank `of` has at `index` of its source; an integer, so that sums are exact.
float value(int of, int round, int index) {
    return static_cast<float>(1000000 * (of + 1) + 977 * (round % 1000) + index % 977);
}

// Blocks of 2 floats, one after every 4.
MPI_Datatype make_vector() {
    MPI_Datatype type;
    MPI_Type_vector(kFloats / 4, 2, 4, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
}

bool in_vector(int index) {
    return index % 4 < 2;
}

// Blocks of 5 floats at unequal distances, one in every 20.
constexpr int kSlot = 20;
constexpr int kBlock = 5;

int displacement(int slot) {
    return slot * kSlot + slot * 7 % 13;
}

MPI_Datatype make_indexed() {
    std::vector<int> displacements;
    for (int slot = 0; slot < kFloats / kSlot; ++slot) {
        displacements.push_back(displacement(slot));
    }
    MPI_Datatype type;
    MPI_Type_create_indexed_block(static_cast<int>(displacements.size()), kBlock,
                                  displacements.data(), MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
}

bool in_indexed(int index) {
    const int begin = displacement(index / kSlot);
    return index >= begin && index < begin + kBlock;
}

void exchange(const Buffers &buffers, MPI_Datatype (*make)()) {
    MPI_Datatype type = make();
    MPI_Sendrecv(buffers.source, 1, type, 1 - rank, 0, buffers.destination, 1, type, 1 - rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
}

void add_up(const Buffers &buffers, int count) {
    MPI_Allreduce(buffers.source, buffers.destination, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void add_up_later(const Buffers &buffers, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(buffers.source, buffers.destination, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                   &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

float sum(int round, int index) {
    return value(0, round, index) + value(1, round, index);
}

struct Operation {
    const char *name;  // one word
    void (*run)(const Buffers &);
    float (*expected)(int round, int index);  // in the destination
};

const Operation kOperations[] = {
    {"vector", [](const Buffers &buffers) { exchange(buffers, make_vector); },
     [](int round, int index) {
         return in_vector(index) ? value(1 - rank, round, index) : kUntouched;
     }},
    {"indexed", [](const Buffers &buffers) { exchange(buffers, make_indexed); },
     [](int round, int index) {
         return in_indexed(index) ? value(1 - rank, round, index) : kUntouched;
     }},
    {"allreduce", [](const Buffers &buffers) { add_up(buffers, kFloats); }, sum},
    {"short-allreduce", [](const Buffers &buffers) { add_up(buffers, kShort); },
     [](int round, int index) { return index < kShort ? sum(round, index) : kUntouched; }},
    {"short-iallreduce", [](const Buffers &buffers) { add_up_later(buffers, kShort); },
     [](int round, int index) { return index < kShort ? sum(round, index) : kUntouched; }},
    {"alltoall",
     [](const Buffers &buffers) {
         MPI_Alltoall(buffers.source, kFloats / 2, MPI_FLOAT, buffers.destination, kFloats / 2,
                      MPI_FLOAT, MPI_COMM_WORLD);
     },
     [](int round, int index) {
         const int half = kFloats / 2;
         return value(index / half, round, rank * half + index % half);
     }},
};

const Operation &operation(const std::string &name) {
    const auto found = std::find_if(std::begin(kOperations), std::end(kOperations),
                                    [&](const Operation &one) { return one.name == name; });
    if (found == std::end(kOperations)) {
        throw std::runtime_error(name + ": no such operation");
    }
    return *found;
}

// ---------------------------------------------------------------- the driver

// What test/simcuda/simcuda.h declares, and a function of the driver that only this program needs.
class Controls {
public:
    Controls()
        : library_(dlopen("libcuda.so.1", RTLD_NOW)),
          set_(find<decltype(set_)>("simcuda_set")),
          count_(find<decltype(count_)>("simcuda_call_count")),
          reset_context_(find<decltype(reset_context_)>("cuDevicePrimaryCtxReset_v2")) {}

    bool usable() const { return set_ != nullptr && count_ != nullptr; }

    // Of each function: the `n`-th call from now on and those that follow, `times` in all.
    void fail_calls(const std::vector<std::string> &functions, unsigned long n, int times) const {
        // A rule fails once; while it does, those behind it do not count the call.
        std::string rules;
        for (const std::string &function : functions) {
            for (int i = 0; i < times; ++i) {
                rules += (rules.empty() ? "" : ",") + function + ":" + std::to_string(n) + ":999";
            }
        }
        set_("SIMCUDA_FAIL", rules.c_str());
    }
    void fail_nothing() const { set_("SIMCUDA_FAIL", ""); }

    std::vector<unsigned long> calls(const std::vector<std::string> &functions) const {
        std::vector<unsigned long> counts;
        for (const std::string &function : functions) {
            counts.push_back(count_(function.c_str()));
        }
        return counts;
    }

    // Everything of the primary context of a device goes.
    void reset_context(int device) const { reset_context_(device); }

private:
    template <typename Function>
    Function find(const char *name) const {
        return library_ != nullptr ? reinterpret_cast<Function>(dlsym(library_, name)) : nullptr;
    }

    void *library_;
    int (*set_)(const char *variable, const char *setting);
    unsigned long (*count_)(const char *function);
    CUresult (*reset_context_)(CUdevice device);
};

// The buffers of one trial, in a context of its own, with which goes what a failure leaves behind
// (a standby kernel that is given up, mappings) and what gpushm keeps.
class Setup {
public:
    Setup(CudaDriver &driver, const Controls &controls) : driver_(driver), controls_(controls) {
        driver_.use_device(device());
        buffers_.source = driver_.allocate(MemoryKind::device, kFloats * sizeof(float));
        buffers_.destination = driver_.allocate(MemoryKind::device, kFloats * sizeof(float));
    }
    ~Setup() {
        driver_.release(MemoryKind::device, buffers_.source);
        driver_.release(MemoryKind::device, buffers_.destination);
        controls_.reset_context(device());
    }
    Setup(const Setup &) = delete;
    Setup &operator=(const Setup &) = delete;

    // Fresh values in the source; both ranks are ready when it returns.
    void prepare(int round) const {
        std::vector<float> values(kFloats);
        for (int index = 0; index < kFloats; ++index) {
            values[index] = value(rank, round, index);
        }
        driver_.write(buffers_.source, values.data(), kFloats * sizeof(float));
        values.assign(kFloats, kUntouched);
        driver_.write(buffers_.destination, values.data(), kFloats * sizeof(float));
        MPI_Barrier(MPI_COMM_WORLD);
    }

    // Whether all ranks have what the operation should have given.
    bool is_right(const Operation &operation, int round) const {
        std::vector<float> got(kFloats);
        driver_.read(got.data(), buffers_.destination, kFloats * sizeof(float));
        int faults = 0;
        for (int index = 0; index < kFloats; ++index) {
            faults += got[index] != operation.expected(round, index) ? 1 : 0;
        }
        MPI_Allreduce(MPI_IN_PLACE, &faults, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        return faults == 0;
    }

    const Buffers &buffers() const { return buffers_; }

private:
    int device() const { return rank % driver_.device_count(); }

    CudaDriver &driver_;
    const Controls &controls_;
    Buffers buffers_{};
};

// ---------------------------------------------------------------- errors of MPI

void end_with_error(MPI_Comm *, int *code, ...) {
    char reason[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(*code, reason, &length);
    std::printf("driver_failures: rank %d: %s\n", rank, reason);
    std::fflush(stdout);
    _exit(kMpiError);
}

// While it lives, errors on MPI_COMM_WORLD are what a trial may end with.
class ErrorsAllowed {
public:
    ErrorsAllowed() {
        MPI_Comm_create_errhandler(end_with_error, &handler_);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler_);
    }
    ~ErrorsAllowed() {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_Errhandler_free(&handler_);
    }
    ErrorsAllowed(const ErrorsAllowed &) = delete;
    ErrorsAllowed &operator=(const ErrorsAllowed &) = delete;

private:
    MPI_Errhandler handler_;
};

// ---------------------------------------------------------------- trials

struct Trial {
    std::string operation;
    int warm;  // how often the operation ran before in the same context
    int rank;  // where the call fails
    std::string function;
    unsigned long n;  // the call of the function that fails, 1 is the first
    int times;        // how many calls fail
};

std::istream &operator>>(std::istream &in, Trial &trial) {
    return in >> trial.operation >> trial.warm >> trial.rank >> trial.function >> trial.n >>
           trial.times;
}

void warm_up(const Setup &setup, const Operation &operation, int times) {
    for (int round = 0; round < times; ++round) {
        setup.prepare(round);
        operation.run(setup.buffers());
        if (!setup.is_right(operation, round)) {
            throw std::runtime_error(std::string(operation.name) + " fails when no call does");
        }
    }
}

void print_trial(const Trial &trial) {
    std::printf("%s %d %d %s %lu %d\n", trial.operation.c_str(), trial.warm, trial.rank,
                trial.function.c_str(), trial.n, trial.times);
}

// Of `calls` calls the first ones and the last one fail (how many there are depends on time where
// it polls), and all of them together.
void print_trials(Trial trial, unsigned long calls) {
    constexpr unsigned long kFirst = 3;
    constexpr int kAll = 200;
    trial.times = 1;
    for (trial.n = 1; trial.n <= std::min(calls, kFirst); ++trial.n) {
        print_trial(trial);
    }
    if (calls > kFirst) {
        trial.n = calls;
        print_trial(trial);
    }
    if (calls > 0 && trial.warm > 0 && trial.rank == 0) {
        trial.n = 1;
        trial.times = kAll;
        print_trial(trial);
    }
}

void list_trials(CudaDriver &driver, const Controls &controls, const Operation &operation, int warm,
                 const std::vector<std::string> &functions) {
    const Setup setup(driver, controls);
    warm_up(setup, operation, warm);
    setup.prepare(warm);
    const std::vector<unsigned long> before = controls.calls(functions);
    operation.run(setup.buffers());
    const std::vector<unsigned long> after = controls.calls(functions);
    for (size_t i = 0; i < functions.size(); ++i) {
        const unsigned long own = after[i] - before[i];
        unsigned long calls[kRanks] = {};
        MPI_Gather(&own, 1, MPI_UNSIGNED_LONG, calls, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
        for (int of = 0; of < kRanks; ++of) {
            print_trials({operation.name, warm, of, functions[i], 0, 0}, calls[of]);
        }
    }
}

// Returns whether all data are right; does not return when MPI has an error.
bool run_trial(CudaDriver &driver, const Controls &controls, const Trial &trial) {
    const Operation &tried = operation(trial.operation);
    const Setup setup(driver, controls);
    warm_up(setup, tried, trial.warm);
    setup.prepare(trial.warm);
    const ErrorsAllowed allowed;
    if (trial.rank == rank) {
        controls.fail_calls({trial.function}, trial.n, trial.times);
    }
    tried.run(setup.buffers());
    controls.fail_nothing();
    return setup.is_right(tried, trial.warm);
}

// ---------------------------------------------------------------- errors that are returned

// While it lives, `controls` let nothing be copied from GPU memory by this rank, `times` times at
// least.
class NothingCopied {
public:
    NothingCopied(const Controls &controls, int times) : controls_(controls) {
        controls_.fail_calls({"cuMemcpyAsync", "cuMemcpyDtoHAsync", "cuMemcpyBatchAsync",
                              "cuMemcpy", "cuMemcpyDtoH", "cuLaunchKernel"},
                             1, times);
    }
    ~NothingCopied() { controls_.fail_nothing(); }
    NothingCopied(const NothingCopied &) = delete;
    NothingCopied &operator=(const NothingCopied &) = delete;

private:
    const Controls &controls_;
};

// Returns whether MPI_Pack returns an error where nothing can be copied, and MPI_Bsend, which
// packs.
bool errors_are_returned(CudaDriver &driver, const Controls &controls) {
    constexpr int kBytes = kFloats * sizeof(float);
    const Setup setup(driver, controls);
    setup.prepare(0);
    std::vector<char> packed(kBytes);
    std::vector<char> attached(kBytes + MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int pack;
    int send;
    {
        const NothingCopied nothing_copied(controls, 20);
        int position = 0;
        pack = MPI_Pack(setup.buffers().source, kFloats, MPI_FLOAT, packed.data(), kBytes,
                        &position, MPI_COMM_WORLD);
        send = MPI_Bsend(setup.buffers().source, kFloats, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    void *detached = nullptr;
    int size = 0;
    MPI_Buffer_detach(&detached, &size);
    std::printf("rank %d, nothing can be copied: MPI_Pack returned %d, MPI_Bsend %d\n", rank, pack,
                send);
    return pack != MPI_SUCCESS && send != MPI_SUCCESS;
}

// Returns whether MPI_Wait returns an error when the result of a nonblocking reduction cannot be
// copied to its place. It is not there before rank 1 takes part, after rank 0 has begun.
bool wait_returns_the_error(CudaDriver &driver, const Controls &controls) {
    const Setup setup(driver, controls);
    setup.prepare(0);
    MPI_Request request = MPI_REQUEST_NULL;
    const auto begin = [&] {
        MPI_Iallreduce(setup.buffers().source, setup.buffers().destination, kShort, MPI_FLOAT,
                       MPI_SUM, MPI_COMM_WORLD, &request);
    };
    int token = 0;
    if (rank == 1) {
        MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        begin();
        return MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    }
    begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int wait;
    {
        const NothingCopied nothing_copied(controls, 20);
        MPI_Send(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        wait = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    std::printf("rank %d, nothing can be copied: MPI_Wait returned %d\n", rank, wait);
    return wait != MPI_SUCCESS;
}

int errors = 0;  // of MPI_COMM_WORLD, that did not end the job

void count_error(MPI_Comm *, int *, ...) {
    ++errors;
}

// Returns whether a message comes to an end whose elements cannot be packed: UCX, which does not
// hear of it, asks for the next piece.
bool sends_come_to_an_end(CudaDriver &driver, const Controls &controls) {
    constexpr int kMaxPieces = 20;  // of some 8 KB
    const Setup setup(driver, controls);
    setup.prepare(0);
    std::vector<float> received(kFloats);
    MPI_Datatype type = make_indexed();
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(count_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    {
        const NothingCopied nothing_copied(controls, 20 * kMaxPieces);
        MPI_Sendrecv(setup.buffers().source, 1, type, 1 - rank, 0, received.data(), kFloats,
                     MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    MPI_Type_free(&type);
    std::printf("rank %d, nothing can be copied: %d errors of a message\n", rank, errors);
    return errors > 0 && errors <= kMaxPieces;
}

// ---------------------------------------------------------------- the three commands

void list(CudaDriver &driver, const Controls &controls, const std::vector<std::string> &functions) {
    for (const Operation &one : kOperations) {
        for (const int warm : {0, 3}) {
            list_trials(driver, controls, one, warm, functions);
        }
    }
}

void run(CudaDriver &driver, const Controls &controls, const std::string &trials, int first,
         const std::string &report) {
    std::ifstream lines(trials);
    Trial trial;
    for (int i = 0; lines >> trial; ++i) {
        if (i < first) {
            continue;
        }
        note("trial %d", i);
        const bool right = run_trial(driver, controls, trial);
        if (rank == 0) {
            std::ofstream(report, std::ios::app) << i << (right ? " data" : " WRONG DATA") << '\n';
        }
    }
}

int run_command(const std::vector<std::string> &arguments) {
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    const Controls controls;
    if (driver == nullptr || !controls.usable()) {
        std::printf("driver_failures: this driver cannot be told to fail\n");
        return kSkipped;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    start_watchdog(rank, kPatienceSeconds);
    bool passed = true;
    if (!arguments.empty() && arguments[0] == "list") {
        list(*driver, controls, {arguments.begin() + 1, arguments.end()});
    } else if (arguments.size() == 4 && arguments[0] == "run") {
        run(*driver, controls, arguments[1], std::stoi(arguments[2]), arguments[3]);
    } else if (arguments == std::vector<std::string>{"returned"}) {
        passed = errors_are_returned(*driver, controls) &&
                 wait_returns_the_error(*driver, controls) &&
                 sends_come_to_an_end(*driver, controls);
    } else {
        throw std::runtime_error(
            "arguments: list FUNCTION..., run TRIALS FIRST REPORT, or returned");
    }
    stop_watchdog();
    return passed ? 0 : 1;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int status = 2;
    try {
        status = gpushm::mpi_test::run_command({argv + 1, argv + argc});
    } catch (const std::exception &error) {
        std::fprintf(stderr, "driver_failures: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return status;
}
