// SPDX-License-Identifier: BSD-3-Clause
// A program that calls MPI by pointers in its data, as tables of functions by name do, with buffers
// in device memory. Built twice: to be loaded anywhere, where the loader fills in the pointers, and
// for a fixed place (pointers_fixed), where they lead to a stub within the program, which the
// loader takes for the function everywhere.
#include "cuda_driver.hpp"

#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr int kSkipped = 77;
constexpr int kInts = 100000;

struct Function {
    const char *name;
    int (*create)(MPI_User_function *, int, MPI_Op *);
};
const Function functions[] = {{"MPI_Op_create", MPI_Op_create}, {"PMPI_Op_create", PMPI_Op_create}};

void add(void *in, void *inout, int *count, MPI_Datatype *) {
    for (int i = 0; i < *count; ++i) {
        static_cast<int *>(inout)[i] += static_cast<const int *>(in)[i];
    }
}

// The sum of the ranks + 1, by an operation that `create` makes: it gets host memory.
bool adds_up(CudaDriver &driver, const Function &function) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<int> values(kInts, rank + 1);
    const size_t bytes = values.size() * sizeof(int);
    void *const from = driver.allocate(MemoryKind::device, bytes);
    void *const to = driver.allocate(MemoryKind::device, bytes);
    driver.write(from, values.data(), bytes);
    MPI_Op op = MPI_OP_NULL;
    function.create(add, 1, &op);
    MPI_Allreduce(from, to, kInts, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    driver.read(values.data(), to, bytes);
    driver.release(MemoryKind::device, from);
    driver.release(MemoryKind::device, to);
    const bool right = values == std::vector<int>(kInts, size * (size + 1) / 2);
    std::printf("%s by a pointer: %s\n", function.name, right ? "passed" : "WRONG DATA");
    return right;
}

int run() {
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr) {
        std::printf("pointers: skipped: %s\n", reason.c_str());
        return kSkipped;
    }
    driver->use_device(0);
    volatile int count = 2;  // so that the compiler has to look into the table
    bool right = true;
    for (int i = 0; i < count; ++i) {
        right = adds_up(*driver, functions[i]) && right;
    }
    return right ? 0 : 1;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const int status = gpushm::mpi_test::run();
    MPI_Finalize();
    return status;
}
