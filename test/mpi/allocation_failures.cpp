// SPDX-License-Identifier: BSD-3-Clause
// Operations of MPI on device memory, of one rank with itself, during which an allocation of gpushm
// fails: for each operation the first one, then the second one, until there are no more. MPI may
// have an error then, which it returns; what is done afterwards gives the right data. Exit status
// 3: it waits for ever (watchdog.hpp); 77: it cannot be tested.
#include "cuda_driver.hpp"
#include "failing_malloc.hpp"
#include "watchdog.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr int kCount = 20000;  // of ints, in each buffer
constexpr size_t kBytes = kCount * sizeof(int);
// Few blocks: UCX 1.15 and later register each one that is put, and each allocation for it fails in
// turn.
constexpr int kBlock = 200;
constexpr int kStride = 2 * kBlock;
constexpr int kSkipped = 77;
constexpr unsigned kPatienceSeconds = 20;

// What the operations use; it stays until the end, for one that failed may leave something behind.
struct Job {
    int *source;
    int *destination;
    MPI_Datatype vector;  // blocks of kBlock ints, one after every kStride
    MPI_Datatype contiguous;
    MPI_Op either;   // MPI_BOR of the program's own
    MPI_Win window;  // the destination
    MPI_Win dynamic_window;
    MPI_File file;
    int tag;
};
Job job;

void unite(void *in, void *inout, int *count, MPI_Datatype *) {
    for (int i = 0; i < *count; ++i) {
        static_cast<int *>(inout)[i] |= static_cast<int *>(in)[i];
    }
}

// The first error of several calls, all of which are made.
class Result {
public:
    void note(int code) { code_ = code_ == MPI_SUCCESS ? code : code_; }
    int code() const { return code_; }

private:
    int code_ = MPI_SUCCESS;
};

int exchange(MPI_Datatype type, int count) {
    ++job.tag;
    return MPI_Sendrecv(job.source, count, type, 0, job.tag, job.destination, count, type, 0,
                        job.tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int pack_and_unpack() {
    std::vector<char> packed(kBytes);
    int end = 0;
    Result result;
    result.note(MPI_Pack(job.source, 1, job.vector, packed.data(), static_cast<int>(kBytes), &end,
                         MPI_COMM_SELF));
    int begin = 0;
    result.note(MPI_Unpack(packed.data(), static_cast<int>(kBytes), &begin, job.destination, 1,
                           job.vector, MPI_COMM_SELF));
    return result.code();
}

int use_window(int (*access)()) {
    Result result;
    result.note(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, job.window));
    result.note(access());
    result.note(MPI_Win_unlock(0, job.window));
    return result.code();
}

int put() {
    return MPI_Put(job.source, 1, job.vector, 0, 0, 1, job.vector, job.window);
}
int accumulate() {
    return MPI_Accumulate(job.source, kCount, MPI_INT, 0, 0, kCount, MPI_INT, MPI_REPLACE,
                          job.window);
}

int attach_and_detach() {
    const int attached = MPI_Win_attach(job.dynamic_window, job.source, kBytes);
    return attached == MPI_SUCCESS ? MPI_Win_detach(job.dynamic_window, job.source) : attached;
}

int write_and_read() {
    Result result;
    result.note(MPI_File_write_at(job.file, 0, job.source, 1, job.vector, MPI_STATUS_IGNORE));
    result.note(MPI_File_read_at(job.file, 0, job.destination, 1, job.vector, MPI_STATUS_IGNORE));
    return result.code();
}

int write_and_read_later() {
    Result result;
    MPI_Request request = MPI_REQUEST_NULL;
    result.note(MPI_File_iwrite_at(job.file, 0, job.source, 1, job.vector, &request));
    result.note(MPI_Wait(&request, MPI_STATUS_IGNORE));
    request = MPI_REQUEST_NULL;
    result.note(MPI_File_iread_at(job.file, 0, job.destination, 1, job.vector, &request));
    result.note(MPI_Wait(&request, MPI_STATUS_IGNORE));
    return result.code();
}

// In halves, which are short enough for host memory (UCX_GPUSHM_OPENMPI_HOST_COLLECTIVES).
int add_up_later() {
    constexpr int kHalf = kCount / 2;
    Result result;
    for (int begin : {0, kHalf}) {
        MPI_Request request = MPI_REQUEST_NULL;
        result.note(MPI_Iallreduce(static_cast<int *>(job.source) + begin,
                                   static_cast<int *>(job.destination) + begin, kHalf, MPI_INT,
                                   MPI_SUM, MPI_COMM_SELF, &request));
        result.note(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    return result.code();
}

int make_operation() {
    MPI_Op operation = MPI_OP_NULL;
    Result result;
    result.note(MPI_Op_create(unite, 1, &operation));
    if (operation != MPI_OP_NULL) {
        result.note(MPI_Op_free(&operation));
    }
    return result.code();
}

enum class Moves { nothing, vector, everything };

struct Operation {
    const char *name;
    int (*run)();
    Moves moves;  // from the source to the destination
    bool is_one_sided = false;
};

// UCX 1.14 and later end the process where an operation of a window fails ("'abort' is not
// implemented for protocol amo64/post", src/ucp/proto/proto_common.c of 1.18).
bool can_windows_fail() {
    using GetVersion = void (*)(unsigned *major, unsigned *minor, unsigned *release);
    void *const library = dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD);
    const auto get_version = library != nullptr
                                 ? reinterpret_cast<GetVersion>(dlsym(library, "ucp_get_version"))
                                 : nullptr;
    if (get_version == nullptr) {
        return false;
    }
    unsigned major = 0, minor = 0, release = 0;
    get_version(&major, &minor, &release);
    return major == 1 && minor < 14;
}

const Operation kOperations[] = {
    {"sendrecv", [] { return exchange(MPI_INT, kCount); }, Moves::everything},
    {"sendrecv of a vector", [] { return exchange(job.vector, 1); }, Moves::vector},
    {"short sendrecv of a vector", [] { return exchange(job.vector, 1); }, Moves::vector},
    {"pack", pack_and_unpack, Moves::vector},
    {"reduce_local",
     [] { return MPI_Reduce_local(job.source, job.destination, kCount, MPI_INT, MPI_BOR); },
     Moves::everything},
    {"reduce_local by an operation of the program's own",
     [] { return MPI_Reduce_local(job.source, job.destination, kCount, MPI_INT, job.either); },
     Moves::everything},
    {"allreduce",
     [] {
         return MPI_Allreduce(job.source, job.destination, kCount, MPI_INT, MPI_SUM,
                              MPI_COMM_WORLD);
     },
     Moves::everything},
    {"short iallreduce", add_up_later, Moves::everything},
    {"allgather",
     [] {
         return MPI_Allgather(job.source, 1, job.vector, job.destination, 1, job.vector,
                              MPI_COMM_WORLD);
     },
     Moves::vector},
    {"put", [] { return use_window(put); }, Moves::vector, true},
    {"accumulate", [] { return use_window(accumulate); }, Moves::everything, true},
    {"attach", attach_and_detach, Moves::nothing, true},
    {"file", write_and_read, Moves::vector},
    {"file, nonblocking", write_and_read_later, Moves::vector},
    {"op_create", make_operation, Moves::nothing},
};

// Never 0.
int value(int round, int index) {
    return 1 + (index * 7 + round * 13) % 100000;
}

bool is_moved(Moves moves, int index) {
    return moves == Moves::everything || (moves == Moves::vector && index % kStride < kBlock);
}

void prepare(CudaDriver &driver, int round) {
    std::vector<int> values(kCount);
    for (int index = 0; index < kCount; ++index) {
        values[index] = value(round, index);
    }
    driver.write(job.source, values.data(), kBytes);
    values.assign(kCount, 0);
    driver.write(job.destination, values.data(), kBytes);
}

bool is_right(CudaDriver &driver, Moves moves, int round) {
    std::vector<int> got(kCount);
    driver.read(got.data(), job.destination, kBytes);
    for (int index = 0; index < kCount; ++index) {
        if (got[index] != (is_moved(moves, index) ? value(round, index) : 0)) {
            std::printf("allocation_failures: element %d is %d\n", index, got[index]);
            return false;
        }
    }
    return true;
}

void set_up(CudaDriver &driver) {
    job.source = static_cast<int *>(driver.allocate(MemoryKind::device, kBytes));
    job.destination = static_cast<int *>(driver.allocate(MemoryKind::device, kBytes));
    MPI_Type_vector(kCount / kStride, kBlock, kStride, MPI_INT, &job.vector);
    MPI_Type_commit(&job.vector);
    MPI_Op_create(unite, 1, &job.either);
    MPI_Win_create(job.destination, kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &job.window);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &job.dynamic_window);
    char path[] = "allocation_failures.XXXXXX";
    close(mkstemp(path));
    MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                  &job.file);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Win_set_errhandler(job.window, MPI_ERRORS_RETURN);
    MPI_Win_set_errhandler(job.dynamic_window, MPI_ERRORS_RETURN);
    MPI_File_set_errhandler(job.file, MPI_ERRORS_RETURN);
}

// How many allocations there were that could fail; throws when what comes after one of them is
// wrong.
unsigned try_all(CudaDriver &driver, const Operation &operation) {
    int round = 0;
    unsigned errors = 0;
    for (unsigned n = 0;; ++n) {
        note("%s while allocation %u fails", operation.name, n);
        prepare(driver, ++round);
        int code = MPI_SUCCESS;
        bool failed = false;
        {
            const test::FailingMalloc malloc("libuct_gpushm.so", n);
            code = operation.run();
            failed = malloc.has_failed();
        }
        errors += code != MPI_SUCCESS ? 1 : 0;
        if (!failed && code != MPI_SUCCESS) {
            throw std::runtime_error(std::string(operation.name) +
                                     " fails when no allocation does");
        }
        prepare(driver, ++round);
        if (operation.run() != MPI_SUCCESS || !is_right(driver, operation.moves, round)) {
            throw std::runtime_error(std::string(operation.name) + " is wrong after allocation " +
                                     std::to_string(n) + " has failed");
        }
        if (!failed) {
            std::printf("allocation_failures: %s: %u allocations failed, %u errors of MPI\n",
                        operation.name, n, errors);
            return n;
        }
    }
}

int run() {
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr || !test::malloc_can_fail()) {
        std::printf("allocation_failures: skipped: %s\n",
                    driver == nullptr ? reason.c_str() : "a sanitizer's malloc");
        return kSkipped;
    }
    driver->use_device(0);
    set_up(*driver);
    start_watchdog(0, kPatienceSeconds);
    unsigned failures = 0;
    for (const Operation &operation : kOperations) {
        if (!operation.is_one_sided || can_windows_fail()) {
            failures += try_all(*driver, operation);
        }
    }
    stop_watchdog();
    MPI_File_close(&job.file);
    MPI_Win_free(&job.dynamic_window);
    MPI_Win_free(&job.window);
    return failures != 0 ? 0 : 1;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) {
    // UCP's rendezvous protocols end the process where memory cannot be registered
    // (src/ucp/rndv/rndv.c), and so, in its way, does the creation of windows and endpoints.
    setenv("UCX_RNDV_THRESH", "inf", 1);
    MPI_Init(&argc, &argv);
    try {
        const int status = gpushm::mpi_test::run();
        MPI_Finalize();
        return status;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "allocation_failures: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return 1;
}
