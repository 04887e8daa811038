// SPDX-License-Identifier: BSD-3-Clause
// Memory of a kind for the tests of windows.
#pragma once

#include "cuda_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpushm::mpi_test::late_windows {

using Value = int64_t;
using Kinds = std::vector<MemoryKind>;

// "host", "device", ..., or "mixed": all of them in turn. Empty when there is none of that name.
Kinds parse_kinds(const std::string &name);

// Some values in memory of a kind.
class Memory {
public:
    Memory(CudaDriver &driver, MemoryKind kind, size_t count, Value value = -1);
    ~Memory();
    Memory(Memory &&other) noexcept;
    Memory &operator=(Memory &&) = delete;

    void *address(size_t index = 0) const { return static_cast<Value *>(memory_) + index; }
    int count() const { return static_cast<int>(count_); }
    size_t bytes() const { return count_ * sizeof(Value); }

    void write(const std::vector<Value> &values);
    std::vector<Value> read() const;

private:
    CudaDriver *driver_;
    MemoryKind kind_;
    size_t count_;
    void *memory_;
};

// What is not as it should be, so far.
class Findings {
public:
    void expect(const std::string &what, const std::vector<Value> &found,
                const std::vector<Value> &wanted);
    void expect(bool good, const std::string &what);
    int count() const { return count_; }

private:
    int count_ = 0;
};

// The two tests, by all processes of MPI_COMM_WORLD.
void test_regions(CudaDriver &driver, const Kinds &kinds, Findings &findings);

// Starts the program again, with the same arguments. `is_child`: this is such a process.
bool is_child();
void test_worlds(CudaDriver &driver, const Kinds &kinds, char **argv, Findings &findings);

}  // namespace gpushm::mpi_test::late_windows
