// SPDX-License-Identifier: BSD-3-Clause
// What the GPU tests of the core share. They run on the simulated driver and on the real one; what
// only the simulated one can do is skipped on the other.
#pragma once

#include "core/copy/copy_engine.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_query.hpp"
#include "core/standby/standby_registry.hpp"

#include "test/gtest/core/support.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::test {

/** A function of libcuda.so.1 that the core does not use, null when it is not there. */
void *find_cuda(const char *symbol);

template <typename Function>
Function cuda_function(const char *symbol) {
    return reinterpret_cast<Function>(find_cuda(symbol));
}

/** Controls of the simulated driver (test/simcuda/simcuda.h). */
bool simulated();
unsigned long calls(const char *function);
/** Of all functions that a copy or a query may call. */
unsigned long calls_of_all();
/** Of cuThreadExchangeStreamCaptureMode around driver calls: two, none where the driver is older.
 * */
unsigned long capture_mode_calls();
/** Also waits until nothing that went before is in the background. */
void reset_calls();
/** Waits until what is in the background (core/reclaim/deferred_free.hpp) is done; false when it
 * takes too long. */
bool await_background();
/** Waits until a function has been called `count` times and what is in the background
 * (core/reclaim/deferred_free.hpp) is done. False when it is not called so often, or more often. */
bool await_background_calls(const char *function, unsigned long count);
void set_simulation(const char *variable, const char *value);

/** For tests that count calls or make them fail. */
#define SKIP_UNLESS_SIMULATED()                       \
    if (!::gpushm::test::simulated()) {               \
        GTEST_SKIP() << "needs the simulated driver"; \
    }

CUcontext current_context();

const char *memory_kind_name(MemoryKind kind);

/** Memory of one kind, written and read by its owner, not by the code under test. */
class Buffer {
public:
    /** The first four are the memory kinds. Other processes cannot map memory of a pool. */
    enum class Allocator { host, pinned, device, managed, exportable, pool };
    /** Whether there is device memory that is exported as a file descriptor (cuMemCreate). */
    static bool has_exportable();

    Buffer(MemoryKind kind, size_t length) : Buffer(static_cast<Allocator>(kind), length) {}
    /** Device memory is that of the current context's device. */
    Buffer(Allocator allocator, size_t length);
    ~Buffer();
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    unsigned char *data() const { return data_; }
    void fill(uint64_t seed);
    /** Managed memory: its pages leave the CPU, with what is in them. */
    void move_to_gpu();
    /** The context was reset, the memory is gone. */
    void forget();
    /** "" when [begin, begin + length) holds the pattern of `seed` and all around it that of
     * `around`. */
    std::string check(size_t begin, size_t length, uint64_t seed, uint64_t around) const;

private:
    bool is_host() const;

    Allocator allocator_;
    size_t length_;
    size_t mapped_length_ = 0;  // exportable: a multiple of the granularity
    unsigned char *data_ = nullptr;
    bool forgotten_ = false;
};

/** Read by the driver, not by the code under test. */
std::vector<unsigned char> contents_of(const Buffer &buffer, size_t length);

/** Initialises CUDA and makes the primary context of a device current; null where that cannot be
 * had. */
CUcontext enter_primary_context(CUdevice device);

/** Another context of device 0. The one of before is current again. */
CUcontext make_context();
void destroy_context(CUcontext context);

/** Loads gpushm's kernels into it; false where that cannot be. */
bool load_kernels(CUcontext context);

/** Of PinnedBufferPool, those that nobody has taken. */
size_t count_free_pinned_buffer_pool();

/** The test runs with the primary context of device 0 current, and our kernels in it. */
class GpuTest : public testing::Test {
protected:
    GpuTest();
    ~GpuTest() override;

    static std::vector<unsigned char> read(const Buffer &buffer, size_t length) {
        return contents_of(buffer, length);
    }

    const CudaDriver &cuda_ = *CudaDriver::get();
    CUcontext context_ = nullptr;
};

constexpr MemoryKind kAllKinds[] = {MemoryKind::host, MemoryKind::pinned, MemoryKind::device,
                                    MemoryKind::managed};

/** In a function that returns the exit status of a process. */
#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s, line %d: %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                                             \
        }                                                                         \
    } while (false)

/** Runs `body` in a process of its own, which has not called the driver before and has simulated
 * GPUs of its own; 0 when it is right.
 * Define it at namespace scope: FreshProcess name("name", [] { ... return 0; }); */
class FreshProcess {
public:
    FreshProcess(const char *name, int (*body)());
    int run() const;
    /** Called by main: the exit status when the arguments name a body, -1 otherwise. */
    static int run_named(int argc, char **argv);

private:
    const char *name_;
    int (*body_)();
    FreshProcess *next_;
};

/** Of a FreshProcess: the standby kernel of the primary context of its first device, which is
 * current; null where that cannot be had. */
std::shared_ptr<StandbyKernel> fresh_kernel(
    uint32_t beat_ns, uint32_t life_ns,
    StandbyConfig::Mode mode = StandbyConfig::Mode::whenever_possible);

/** The simulated GPU has a copy to do for so long; others that begin meanwhile take as long, unless
 * others_are_fast(). */
class BusyGpu {
public:
    explicit BusyGpu(unsigned microseconds);
    ~BusyGpu();
    BusyGpu(const BusyGpu &) = delete;
    BusyGpu &operator=(const BusyGpu &) = delete;

    bool is_busy() const {
        return CudaDriver::get()->stream_query(stream_) == CUDA_ERROR_NOT_READY;
    }
    static void others_are_fast();

private:
    Buffer from_{MemoryKind::device, 4096};
    Buffer to_{MemoryKind::device, 4096};
    CUstream stream_ = nullptr;
};

}  // namespace gpushm::test
