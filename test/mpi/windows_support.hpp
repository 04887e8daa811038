// SPDX-License-Identifier: BSD-3-Clause
// Buffers, windows and datatypes of the tests of windows.
#pragma once

#include "cuda_driver.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace gpushm::mpi_test {

constexpr int kPad = -7;  // what lies between the elements

inline int own_rank = 0;
inline int rank_count = 0;
inline int failures = 0;
inline std::string report;  // what is wrong, a line each

inline int right_neighbor() {
    return (own_rank + 1) % rank_count;
}
inline int left_neighbor() {
    return (own_rank + rank_count - 1) % rank_count;
}

inline void check(bool is_right, const std::string &what) {
    if (!is_right) {
        ++failures;
        report += "windows: rank " + std::to_string(own_rank) + ": WRONG: " + what + '\n';
    }
}

// Ints in memory of some kind.
class Ints {
public:
    Ints(CudaDriver *driver, MemoryKind kind, std::vector<int> values)
        : driver_(driver), kind_(kind), values_(std::move(values)) {
        memory_ = kind_ == MemoryKind::host ? values_.data()
                                            : static_cast<int *>(driver_->allocate(kind_, bytes()));
        if (kind_ != MemoryKind::host) {
            driver_->write(memory_, values_.data(), bytes());
        }
    }
    ~Ints() {
        if (kind_ != MemoryKind::host) {
            driver_->release(kind_, memory_);
        }
    }
    Ints(const Ints &) = delete;
    Ints &operator=(const Ints &) = delete;

    int *data() { return memory_; }
    MPI_Aint bytes() const { return static_cast<MPI_Aint>(values_.size() * sizeof(int)); }

    const std::vector<int> &values() {
        if (kind_ != MemoryKind::host) {
            driver_->read(values_.data(), memory_, bytes());
        }
        return values_;
    }

private:
    CudaDriver *const driver_;
    const MemoryKind kind_;
    std::vector<int> values_;
    int *memory_ = nullptr;
};

// Where buffers and windows of a test lie.
struct Place {
    CudaDriver *driver;
    MemoryKind origin;
    MemoryKind window;

    std::string name() const { return std::string(to_string(origin)) + " to " + to_string(window); }
};

class Window {
public:
    explicit Window(Ints &memory) {
        MPI_Win_create(memory.data(), memory.bytes(), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                       &window_);
    }
    ~Window() { MPI_Win_free(&window_); }
    Window(const Window &) = delete;
    Window &operator=(const Window &) = delete;
    operator MPI_Win() const { return window_; }

private:
    MPI_Win window_ = MPI_WIN_NULL;
};

class Type {
public:
    // Ints at these places, in this order.
    explicit Type(const std::vector<MPI_Aint> &byte_displacements) {
        MPI_Type_create_hindexed_block(static_cast<int>(byte_displacements.size()), 1,
                                       byte_displacements.data(), MPI_INT, &type_);
        MPI_Type_commit(&type_);
    }
    Type(int blocks, int stride) {
        MPI_Type_vector(blocks, 1, stride, MPI_INT, &type_);
        MPI_Type_commit(&type_);
    }
    ~Type() { MPI_Type_free(&type_); }
    Type(const Type &) = delete;
    Type &operator=(const Type &) = delete;
    operator MPI_Datatype() const { return type_; }

private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

inline std::vector<int> numbers(size_t count, int first) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

// Accumulates whose types have bounds, are of several elements, or of none.
void test_bounds(const Place &place);

}  // namespace gpushm::mpi_test
