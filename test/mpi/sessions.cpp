// SPDX-License-Identifier: BSD-3-Clause
// Sessions of MPI 4, with buffers in device memory:
//
//   sessions again    a session begins and ends, then MPI_Init: Open MPI fills its tables once more
//   sessions alone    no MPI_Init at all, so that there is no MPI_COMM_WORLD
//
// Exit status 77 where this MPI cannot do that. The functions are looked up at run time, for the program is
// built with an Open MPI that may have none of them.
#include "cuda_driver.hpp"

#include <mpi.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr int kSkipped = 77;

[[noreturn]] void fail(const std::string& what)
{
    fprintf(stderr, "sessions: %s\n", what.c_str());
    exit(1);
}

[[noreturn]] void skip(const char* why)
{
    printf("sessions: skipped: %s\n", why);
    exit(kSkipped);
}

template <typename Function>
Function find(const char* name)
{
    void* const function = dlsym(RTLD_DEFAULT, name);
    if (function == nullptr) {
        skip("this MPI has no sessions");
    }
    return reinterpret_cast<Function>(function);
}

using Session = void*;

Session begin_session()
{
    Session session = nullptr;
    const auto init =
            find<int (*)(MPI_Info, MPI_Errhandler, Session*)>("MPI_Session_init");
    if (init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS) {
        fail("MPI_Session_init");
    }
    return session;
}

void end_session(Session session)
{
    find<int (*)(Session*)>("MPI_Session_finalize")(&session);
}

// `count` ints in host or in device memory.
class Ints {
public:
    Ints(CudaDriver& driver, bool on_device, size_t count, int value) :
        driver_(driver), values_(count, value), on_device_(on_device)
    {
        if (on_device) {
            memory_ = driver.allocate(MemoryKind::device, bytes());
            driver.write(memory_, values_.data(), bytes());
        }
    }
    ~Ints()
    {
        if (on_device_) {
            driver_.release(MemoryKind::device, memory_);
        }
    }
    Ints(const Ints&) = delete;
    Ints& operator=(const Ints&) = delete;

    void* data() { return on_device_ ? memory_ : values_.data(); }
    int count() const { return static_cast<int>(values_.size()); }

    void check(int wanted, const std::string& operation)
    {
        if (on_device_) {
            driver_.read(values_.data(), memory_, bytes());
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

    CudaDriver& driver_;
    std::vector<int> values_;
    bool on_device_;
    void* memory_ = nullptr;
};

void test_reductions(CudaDriver& driver, MPI_Comm comm)
{
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (bool on_device : {false, true}) {
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

void run_again(CudaDriver& driver)
{
    Session session = begin_session();
    int sets = 0;
    find<int (*)(Session, MPI_Info, int*)>("MPI_Session_get_num_psets")(session, MPI_INFO_NULL,
                                                                       &sets);
    end_session(session);
    MPI_Init(nullptr, nullptr);
    test_reductions(driver, MPI_COMM_WORLD);
    MPI_Finalize();
}

void run_alone(CudaDriver& driver)
{
    Session session = begin_session();
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    find<int (*)(Session, const char*, MPI_Group*)>("MPI_Group_from_session_pset")(
            session, "mpi://WORLD", &group);
    const auto create = find<int (*)(MPI_Group, const char*, MPI_Info, MPI_Errhandler, MPI_Comm*)>(
            "MPI_Comm_create_from_group");
    if (create(group, "gpushm", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) != MPI_SUCCESS) {
        skip("no communicator without MPI_COMM_WORLD through UCX here");
    }
    test_reductions(driver, comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    end_session(session);
}

} // namespace
} // namespace gpushm::mpi_test

int main(int argc, char** argv)
try {
    using namespace gpushm::mpi_test;
    const std::string mode = argc == 2 ? argv[1] : "";
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr || (mode != "again" && mode != "alone")) {
        fail(driver == nullptr ? reason : "usage: sessions again|alone");
    }
    driver->use_device(0);
    mode == "again" ? run_again(*driver) : run_alone(*driver);
    printf("sessions %s: passed\n", mode.c_str());
    return 0;
} catch (const std::runtime_error& error) {
    fprintf(stderr, "sessions: %s\n", error.what());
    return 1;
}
