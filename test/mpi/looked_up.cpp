// SPDX-License-Identifier: BSD-3-Clause
// A program that is not linked with MPI and calls it by functions that it has looked up, with
// buffers in device memory: before MPI_Init, after it in all libraries and in MPI's own, and in a
// library that it loads after MPI_Init.
#include "cuda_driver.hpp"

#include <mpi.h>

#include <dlfcn.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gpushm::mpi_test {
namespace {

constexpr int kSkipped = 77;
constexpr int kInts = 1000;
constexpr int kPlace = 7;

// The functions of MPI, as they were found.
class Mpi {
public:
    explicit Mpi(std::function<void *(const char *)> find) : find_(std::move(find)) {}

    template <typename Function>
    Function *get(const char *name) const {
        const auto known = known_.find(name);
        void *const found = known != known_.end() ? known->second : find_(name);
        if (found == nullptr) {
            std::printf("looked_up: no %s\n", name);
        }
        return reinterpret_cast<Function *>(found);
    }

    // From now on get() gives what is found now.
    void remember(const std::vector<const char *> &names) {
        for (const char *name : names) {
            known_[name] = find_(name);
        }
    }

private:
    std::function<void *(const char *)> find_;
    std::map<std::string, void *> known_;
};

#define CALL(mpi, name) (mpi).get<decltype(name)>(#name)

// What mpi.h names as variables of libmpi.
struct Handles {
    explicit Handles(void *library)
        : world(find<MPI_Comm>(library, "ompi_mpi_comm_world")),
          ints(find<MPI_Datatype>(library, "ompi_mpi_int")),
          sum(find<MPI_Op>(library, "ompi_mpi_op_sum")),
          no_info(find<MPI_Info>(library, "ompi_mpi_info_null")) {}

    template <typename Handle>
    static Handle find(void *library, const char *name) {
        return static_cast<Handle>(dlsym(library, name));
    }

    MPI_Comm world;
    MPI_Datatype ints;
    MPI_Op sum;
    MPI_Info no_info;
    int rank = 0;
    int size = 0;
};

// Device memory of kInts.
class Buffer {
public:
    Buffer(CudaDriver &driver, const std::vector<int> &values)
        : driver_(driver), memory_(driver.allocate(MemoryKind::device, kInts * sizeof(int))) {
        driver_.write(memory_, values.data(), kInts * sizeof(int));
    }
    ~Buffer() { driver_.release(MemoryKind::device, memory_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    int *get() const { return static_cast<int *>(memory_); }

    std::vector<int> values() const {
        std::vector<int> found(kInts);
        driver_.read(found.data(), memory_, kInts * sizeof(int));
        return found;
    }

private:
    CudaDriver &driver_;
    void *memory_;
};

void add(void *in, void *inout, int *count, MPI_Datatype *) {
    for (int i = 0; i < *count; ++i) {
        static_cast<int *>(inout)[i] += static_cast<const int *>(in)[i];
    }
}

bool operation_adds(CudaDriver &driver, const Mpi &mpi, const Handles &handles) {
    const Buffer from(driver, std::vector<int>(kInts, handles.rank + 1));
    const Buffer to(driver, std::vector<int>(kInts, 0));
    MPI_Op operation = nullptr;
    CALL(mpi, MPI_Op_create)(add, 1, &operation);
    CALL(mpi, MPI_Allreduce)(from.get(), to.get(), kInts, handles.ints, operation, handles.world);
    CALL(mpi, MPI_Op_free)(&operation);
    return to.values() == std::vector<int>(kInts, handles.size * (handles.size + 1) / 2);
}

// Each rank adds to an element of the next, then replaces it.
bool atomics_reach_the_next(CudaDriver &driver, const Mpi &mpi, const Handles &handles) {
    const int next = (handles.rank + 1) % handles.size;
    const int before = (handles.rank + handles.size - 1) % handles.size;
    const Buffer own(driver, std::vector<int>(kInts, 100 * handles.rank));
    std::vector<int> mine = {handles.rank + 1, 100 * next + handles.rank + 1, 7000 + handles.rank};
    mine.resize(kInts);
    const Buffer values(driver, mine);
    const Buffer fetched(driver, std::vector<int>(kInts, -1));
    MPI_Win window = nullptr;
    CALL(mpi, MPI_Win_create)
    (own.get(), kInts * sizeof(int), sizeof(int), handles.no_info, handles.world, &window);
    CALL(mpi, MPI_Win_fence)(0, window);
    CALL(mpi, MPI_Fetch_and_op)
    (values.get(), fetched.get(), handles.ints, next, kPlace, handles.sum, window);
    CALL(mpi, MPI_Win_fence)(0, window);
    const bool added = own.values()[kPlace] == 100 * handles.rank + before + 1 &&
                       fetched.values()[0] == 100 * next;
    CALL(mpi, MPI_Win_fence)(0, window);
    CALL(mpi, MPI_Compare_and_swap)
    (values.get() + 2, values.get() + 1, fetched.get() + 1, handles.ints, next, kPlace, window);
    CALL(mpi, MPI_Win_fence)(0, window);
    const bool swapped = own.values()[kPlace] == 7000 + before && fetched.values()[1] == mine[1];
    CALL(mpi, MPI_Win_free)(&window);
    return added && swapped;
}

bool file_keeps_values(CudaDriver &driver, const Mpi &mpi, const Handles &handles,
                       const std::string &path) {
    std::vector<int> values(kInts);
    for (int i = 0; i < kInts; ++i) {
        values[static_cast<size_t>(i)] = 10000 * handles.rank + i;
    }
    const Buffer from(driver, values);
    const Buffer to(driver, std::vector<int>(kInts, 0));
    const MPI_Offset place =
        static_cast<MPI_Offset>(handles.rank) * kInts * static_cast<MPI_Offset>(sizeof(int));
    MPI_File file = nullptr;
    CALL(mpi, MPI_File_open)
    (handles.world, path.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
     handles.no_info, &file);
    CALL(mpi, MPI_File_write_at_all)
    (file, place, from.get(), kInts, handles.ints, MPI_STATUS_IGNORE);
    CALL(mpi, MPI_File_read_at_all)(file, place, to.get(), kInts, handles.ints, MPI_STATUS_IGNORE);
    CALL(mpi, MPI_File_close)(&file);
    return to.values() == values;
}

bool tells_of_cuda(const Mpi &mpi) {
    return mpi.get<int()>("MPIX_Query_cuda_support")() == 1;
}

bool report(const char *way, const char *what, bool right) {
    std::printf("looked_up: %s, %s: %s\n", way, what, right ? "passed" : "WRONG");
    std::fflush(stdout);
    return right;
}

bool run_way(const char *way, const Mpi &mpi, CudaDriver &driver, const Handles &handles,
             const std::string &path) {
    bool right = report(way, "the answer about CUDA", tells_of_cuda(mpi));
    right =
        report(way, "an operation of the program", operation_adds(driver, mpi, handles)) && right;
    right = report(way, "atomic operations", atomics_reach_the_next(driver, mpi, handles)) && right;
    return report(way, "a file", file_keeps_values(driver, mpi, handles, path)) && right;
}

// Those of a library that uses MPI, and is loaded now.
Mpi load_library(const std::string &path) {
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *const find = library != nullptr ? dlsym(library, "function_of_mpi") : nullptr;
    if (find == nullptr) {
        std::printf("looked_up: %s\n", dlerror());
        return Mpi([](const char *) { return nullptr; });
    }
    return Mpi(reinterpret_cast<void *(*)(const char *)>(find));
}

const std::vector<const char *> kNames = {
    "MPI_Op_create",          "MPI_Op_free",          "MPI_Allreduce",
    "MPI_Win_create",         "MPI_Win_fence",        "MPI_Win_free",
    "MPI_Fetch_and_op",       "MPI_Compare_and_swap", "MPI_File_open",
    "MPI_File_write_at_all",  "MPI_File_read_at_all", "MPI_File_close",
    "MPIX_Query_cuda_support"};

int run(int argc, char **argv) {
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr) {
        std::printf("looked_up: skipped: %s\n", reason.c_str());
        return kSkipped;
    }
    void *const library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::printf("looked_up: %s\n", dlerror());
        return 1;
    }
    const auto find = [library](const char *name) { return dlsym(library, name); };
    const Mpi mpi(find);
    Mpi before(find);
    before.remember(kNames);
    CALL(mpi, MPI_Init)(&argc, &argv);
    Handles handles(library);
    CALL(mpi, MPI_Comm_rank)(handles.world, &handles.rank);
    CALL(mpi, MPI_Comm_size)(handles.world, &handles.size);
    driver->use_device(handles.rank % driver->device_count());
    const std::string path = std::string(argv[2]) + "/looked_up.data";
    bool right = run_way("before MPI_Init", before, *driver, handles, path);
    right = run_way("in libmpi", mpi, *driver, handles, path) && right;
    right = run_way("by a library loaded later", load_library(argv[1]), *driver, handles, path) &&
            right;
    dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    const Mpi everywhere([](const char *name) { return dlsym(RTLD_DEFAULT, name); });
    right = run_way("in all libraries", everywhere, *driver, handles, path) && right;
    CALL(mpi, MPI_Finalize)();
    return right ? 0 : 1;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr,
                     "usage: looked_up LIBRARY FOLDER (of looked_up_library.so, for a file)\n");
        return 2;
    }
    return gpushm::mpi_test::run(argc, argv);
}
