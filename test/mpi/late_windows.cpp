// SPDX-License-Identifier: BSD-3-Clause
// Windows whose memory or processes are not all there when MPI starts:
//
//   late_windows regions KIND    memory is attached to a dynamic window and detached, many pieces
//   at a time late_windows worlds KIND     windows over processes that were started by
//   MPI_Comm_spawn
//
// KIND: host, pinned, device, managed or mixed.
#include "watchdog.hpp"
#include "late_windows_memory.hpp"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace gpushm::mpi_test::late_windows {
namespace {

constexpr MemoryKind kKinds[] = {MemoryKind::host, MemoryKind::device, MemoryKind::managed,
                                 MemoryKind::pinned};
constexpr unsigned kPatienceSeconds = 60;

std::string to_text(const std::vector<Value> &values) {
    std::string text;
    for (size_t i = 0; i < values.size() && i < 8; ++i) {
        text += " " + std::to_string(values[i]);
    }
    return text;
}

int run(int argc, char **argv) {
    const std::string mode = argc == 3 ? argv[1] : "";
    const Kinds kinds = parse_kinds(argc == 3 ? argv[2] : "");
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver == nullptr || kinds.empty() || (mode != "regions" && mode != "worlds")) {
        throw std::runtime_error(driver == nullptr ? reason
                                                   : "usage: late_windows regions|worlds KIND");
    }
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    driver->use_device(rank % driver->device_count());
    start_watchdog(rank, kPatienceSeconds);
    Findings findings;
    if (mode == "regions") {
        test_regions(*driver, kinds, findings);
    } else {
        test_worlds(*driver, kinds, argv, findings);
    }
    int sum = findings.count();
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && (sum > 0 || !is_child())) {
        printf("late_windows %s %s: %s\n", argv[1], argv[2], sum == 0 ? "passed" : "FAILED");
    }
    stop_watchdog();
    MPI_Finalize();
    return sum == 0 ? 0 : 1;
}

}  // namespace

Kinds parse_kinds(const std::string &name) {
    Kinds kinds;
    for (MemoryKind kind : kKinds) {
        if (name == "mixed" || name == to_string(kind)) {
            kinds.push_back(kind);
        }
    }
    return kinds;
}

Memory::Memory(CudaDriver &driver, MemoryKind kind, size_t count, Value value)
    : driver_(&driver), kind_(kind), count_(count) {
    memory_ = kind == MemoryKind::host ? malloc(bytes()) : driver.allocate(kind, bytes());
    write(std::vector<Value>(count, value));
}

Memory::~Memory() {
    if (memory_ == nullptr) {
        return;
    }
    if (kind_ == MemoryKind::host) {
        free(memory_);
    } else {
        driver_->release(kind_, memory_);
    }
}

Memory::Memory(Memory &&other) noexcept
    : driver_(other.driver_),
      kind_(other.kind_),
      count_(other.count_),
      memory_(std::exchange(other.memory_, nullptr)) {}

void Memory::write(const std::vector<Value> &values) {
    if (kind_ == MemoryKind::host) {
        std::memcpy(memory_, values.data(), bytes());
    } else {
        driver_->write(memory_, values.data(), bytes());
    }
}

std::vector<Value> Memory::read() const {
    std::vector<Value> values(count_);
    if (kind_ == MemoryKind::host) {
        std::memcpy(values.data(), memory_, bytes());
    } else {
        driver_->read(values.data(), memory_, bytes());
    }
    return values;
}

void Findings::expect(const std::string &what, const std::vector<Value> &found,
                      const std::vector<Value> &wanted) {
    if (found != wanted) {
        expect(false, what + ":" + to_text(found) + " instead of" + to_text(wanted));
    }
}

void Findings::expect(bool good, const std::string &what) {
    if (!good && count_++ < 10) {
        fprintf(stderr, "late_windows: %s\n", what.c_str());
    }
}

}  // namespace gpushm::mpi_test::late_windows

int main(int argc, char **argv) try {
    return gpushm::mpi_test::late_windows::run(argc, argv);
} catch (const std::runtime_error &error) {
    fprintf(stderr, "late_windows: %s\n", error.what());
    return 1;
}
