// SPDX-License-Identifier: BSD-3-Clause
// Sessions of MPI 4, with buffers in host memory, and in device memory where there is a CUDA
// driver:
//
//   sessions again    a session begins and ends, then MPI_Init: Open MPI fills its tables once more
//   sessions alone    no MPI_Init at all, so that there is no MPI_COMM_WORLD
//   sessions beside   MPI_Init, and communicators of a session's groups beside MPI_COMM_WORLD
//   sessions window   as alone: a window in device memory is an error of MPI_Win_create
//   sessions tools    no session: MPI_T begins before MPI_Init, and opens Open MPI's components
//
// Exit status 77 where this MPI cannot do that. The functions are found at run time, for the
// program is built with an Open MPI that may have none of them.
#include "cuda_driver.hpp"

#include <mpi.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

// Null where MPI has none; else called as by a program that is linked to it.
extern "C" {
int MPI_Comm_create_from_group(MPI_Group group, const char *tag, MPI_Info info,
                               MPI_Errhandler handler, MPI_Comm *comm) __attribute__((weak));
int MPI_Intercomm_create_from_groups(MPI_Group local, int local_leader, MPI_Group remote,
                                     int remote_leader, const char *tag, MPI_Info info,
                                     MPI_Errhandler handler, MPI_Comm *comm) __attribute__((weak));
}

namespace gpushm::mpi_test {
namespace {

constexpr int kSkipped = 77;

[[noreturn]] void fail(const std::string &what) {
    fprintf(stderr, "sessions: %s\n", what.c_str());
    exit(1);
}

[[noreturn]] void skip(const char *why) {
    printf("sessions: skipped: %s\n", why);
    exit(kSkipped);
}

template <typename Function>
Function find(const char *name) {
    void *const function = dlsym(RTLD_DEFAULT, name);
    if (function == nullptr) {
        skip("this MPI has no sessions");
    }
    return reinterpret_cast<Function>(function);
}

using Session = void *;

Session begin_session() {
    Session session = nullptr;
    const auto init = find<int (*)(MPI_Info, MPI_Errhandler, Session *)>("MPI_Session_init");
    if (init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS) {
        fail("MPI_Session_init");
    }
    return session;
}

void end_session(Session session) {
    find<int (*)(Session *)>("MPI_Session_finalize")(&session);
}

// `count` ints in host or in device memory.
class Ints {
public:
    Ints(CudaDriver *driver, bool on_device, size_t count, int value)
        : driver_(driver), values_(count, value), on_device_(on_device) {
        if (on_device) {
            memory_ = driver->allocate(MemoryKind::device, bytes());
            driver->write(memory_, values_.data(), bytes());
        }
    }
    ~Ints() {
        if (on_device_) {
            driver_->release(MemoryKind::device, memory_);
        }
    }
    Ints(const Ints &) = delete;
    Ints &operator=(const Ints &) = delete;

    void *data() { return on_device_ ? memory_ : values_.data(); }
    int count() const { return static_cast<int>(values_.size()); }

    void check(int wanted, const std::string &operation) {
        if (on_device_) {
            driver_->read(values_.data(), memory_, bytes());
        }
        for (int value : values_) {
            if (value != wanted) {
                fail(operation + ": " + std::to_string(value) + " instead of " +
                     std::to_string(wanted));
            }
        }
    }

private:
    size_t bytes() const { return values_.size() * sizeof(int); }

    CudaDriver *driver_;
    std::vector<int> values_;
    bool on_device_;
    void *memory_ = nullptr;
};

std::vector<bool> memory_kinds(const CudaDriver *driver) {
    return driver != nullptr ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

void test_reductions(CudaDriver *driver, MPI_Comm comm) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (bool on_device : memory_kinds(driver)) {
        for (size_t count : {2u, 1u << 18}) {
            Ints own(driver, on_device, count, rank + 1);
            Ints sum(driver, on_device, count, -1);
            MPI_Allreduce(own.data(), sum.data(), own.count(), MPI_INT, MPI_SUM, comm);
            sum.check(size * (size + 1) / 2, "MPI_Allreduce");
            Ints again(driver, on_device, count, -1);
            MPI_Request request;
            MPI_Iallreduce(own.data(), again.data(), own.count(), MPI_INT, MPI_SUM, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            again.check(size * (size + 1) / 2, "MPI_Iallreduce");
            if (comm != MPI_COMM_WORLD) {
                continue;  // MPI_Reduce_local of Open MPI 6.0.0rc2 crashes without it
            }
            MPI_Reduce_local(own.data(), sum.data(), own.count(), MPI_INT, MPI_SUM);
            sum.check(size * (size + 1) / 2 + rank + 1, "MPI_Reduce_local");
        }
    }
}

// From each rank to the next one, contiguous and every second element.
void test_messages(CudaDriver *driver, MPI_Comm comm) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const int next = (rank + 1) % size;
    const int last = (rank + size - 1) % size;
    MPI_Datatype every_second;
    MPI_Type_vector(1 << 10, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    for (bool on_device : memory_kinds(driver)) {
        for (size_t count : {1u, 1u << 11, 1u << 20}) {
            Ints own(driver, on_device, count, rank);
            Ints other(driver, on_device, count, -1);
            MPI_Sendrecv(own.data(), own.count(), MPI_INT, next, 1, other.data(), other.count(),
                         MPI_INT, last, 1, comm, MPI_STATUS_IGNORE);
            other.check(last, "MPI_Sendrecv");
        }
        Ints rows(driver, on_device, 1 << 11, rank);
        Ints packed(driver, on_device, 1 << 10, -1);
        MPI_Sendrecv(rows.data(), 1, every_second, next, 2, packed.data(), packed.count(), MPI_INT,
                     last, 2, comm, MPI_STATUS_IGNORE);
        packed.check(last, "MPI_Sendrecv of a vector");
    }
    MPI_Type_free(&every_second);
}

void run_again(CudaDriver *driver) {
    Session session = begin_session();
    int sets = 0;
    find<int (*)(Session, MPI_Info, int *)>("MPI_Session_get_num_psets")(session, MPI_INFO_NULL,
                                                                         &sets);
    end_session(session);
    MPI_Init(nullptr, nullptr);
    test_reductions(driver, MPI_COMM_WORLD);
    MPI_Finalize();
}

MPI_Group world_of(Session session) {
    MPI_Group group = MPI_GROUP_NULL;
    find<int (*)(Session, const char *, MPI_Group *)>("MPI_Group_from_session_pset")(
        session, "mpi://WORLD", &group);
    return group;
}

MPI_Comm communicator_of(MPI_Group group, const char *name) {
    MPI_Comm comm = MPI_COMM_NULL;
    if (MPI_Comm_create_from_group(group, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) !=
        MPI_SUCCESS) {
        fail("MPI_Comm_create_from_group");
    }
    return comm;
}

void run_alone(CudaDriver *driver) {
    Session session = begin_session();
    MPI_Group group = world_of(session);
    MPI_Comm comm = communicator_of(group, "gpushm");
    test_messages(driver, comm);
    test_reductions(driver, comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    end_session(session);
}

void run_window(CudaDriver *driver) {
    if (driver == nullptr) {
        skip("no CUDA driver");
    }
    Session session = begin_session();
    MPI_Group group = world_of(session);
    MPI_Comm comm = communicator_of(group, "gpushm");
    {
        Ints memory(driver, true, 1024, 0);
        MPI_Win window = MPI_WIN_NULL;
        if (MPI_Win_create(memory.data(), 4096, 4, MPI_INFO_NULL, comm, &window) == MPI_SUCCESS) {
            fail("MPI_Win_create takes device memory");
        }
    }
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    end_session(session);
}

// The even and the odd ranks, each a group, talk to each other.
void test_intercommunicator(MPI_Group world) {
    int rank = 0;
    int size = 0;
    MPI_Group_rank(world, &rank);
    MPI_Group_size(world, &size);
    MPI_Group groups[2];
    for (int parity : {0, 1}) {
        int range[1][3] = {{parity, size - 1, 2}};
        MPI_Group_range_incl(world, 1, range, &groups[parity]);
    }
    MPI_Comm comm = MPI_COMM_NULL;
    if (MPI_Intercomm_create_from_groups(groups[rank % 2], 0, groups[1 - rank % 2], 0,
                                         "gpushm-inter", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                         &comm) != MPI_SUCCESS) {
        fail("MPI_Intercomm_create_from_groups");
    }
    int others = 0;
    MPI_Allreduce(&rank, &others, 1, MPI_INT, MPI_MIN, comm);
    if (others != 1 - rank % 2) {
        fail("MPI_Allreduce of an intercommunicator");
    }
    MPI_Comm_free(&comm);
    MPI_Group_free(&groups[0]);
    MPI_Group_free(&groups[1]);
}

void run_beside(CudaDriver *driver) {
    MPI_Init(nullptr, nullptr);
    Session session = begin_session();
    MPI_Group group = world_of(session);
    MPI_Comm comm = communicator_of(group, "gpushm");
    MPI_Comm second = communicator_of(group, "gpushm-second");
    int relation = MPI_UNEQUAL;
    MPI_Comm_compare(comm, second, &relation);
    if (relation != MPI_CONGRUENT) {
        fail("MPI_Comm_compare");
    }
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(comm, &handler);
    if (handler != MPI_ERRORS_RETURN) {
        fail("MPI_Comm_get_errhandler");
    }
    test_messages(driver, comm);
    test_reductions(driver, second);
    test_reductions(driver, MPI_COMM_WORLD);
    int size = 0;
    MPI_Comm_size(comm, &size);
    if (size > 1) {
        test_intercommunicator(group);
    }
    MPI_Comm_free(&comm);
    MPI_Comm_free(&second);
    MPI_Group_free(&group);
    end_session(session);
    MPI_Finalize();
}

// Without MPI_T_finalize(), with which Open MPI 4.1.4 crashes after MPI_Finalize().
void run_tools(CudaDriver *driver) {
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Init(nullptr, nullptr);
    test_messages(driver, MPI_COMM_WORLD);
    test_reductions(driver, MPI_COMM_WORLD);
    MPI_Finalize();
}

struct Mode {
    const char *name;
    void (*run)(CudaDriver *driver);
};
constexpr Mode kModes[] = {{"again", run_again},
                           {"alone", run_alone},
                           {"beside", run_beside},
                           {"window", run_window},
                           {"tools", run_tools}};

const Mode *find_mode(const std::string &name) {
    for (const Mode &mode : kModes) {
        if (name == mode.name) {
            return &mode;
        }
    }
    return nullptr;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) try {
    using namespace gpushm::mpi_test;
    const Mode *const mode = find_mode(argc == 2 ? argv[1] : "");
    if (mode == nullptr) {
        fail("usage: sessions again|alone|beside|window|tools");
    }
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver != nullptr) {
        driver->use_device(0);
    }
    mode->run(driver.get());
    printf("sessions %s: passed\n", mode->name);
    return 0;
} catch (const std::runtime_error &error) {
    fprintf(stderr, "sessions: %s\n", error.what());
    return 1;
}
