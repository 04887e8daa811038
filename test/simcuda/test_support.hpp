// SPDX-License-Identifier: BSD-3-Clause
// What the tests share: a context, memory that frees itself, fresh data, and a gate for streams.
#pragma once

#include "driver_api.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

// Google Test prints a CUresult as a number; this names it.
testing::AssertionResult succeeded(const char *expression, CUresult result);
#define ASSERT_CU(call) ASSERT_PRED_FORMAT1(succeeded, call)
#define EXPECT_CU(call) EXPECT_PRED_FORMAT1(succeeded, call)

// cuInit, then retains the device's primary context and makes it current. False if that fails.
bool start_cuda(CUdevice device, CUcontext *context);

int device_count();
// Whether there is a device 1, and device 0 can access it.
bool has_peer();

std::string hex(const CUuuid &uuid);

// As CUDA_VISIBLE_DEVICES takes it.
std::string gpu_name(const CUuuid &uuid);

// An IPC handle as an argument of a child process.
std::string to_text(const CUipcMemHandle &handle);
CUresult open_handle(CUdeviceptr *address, const std::string &text);

using Bytes = std::vector<unsigned char>;

// Bytes that no earlier call returned and that differ at each position.
Bytes fresh_bytes(std::size_t count);

inline CUdeviceptr address_of(const void *pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

// Tests run with the primary context of device 0 current, and leave the thread as they found it.
class DriverTest : public testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    CUcontext context_ = nullptr;
};

// Memory of the current context, null if the allocation failed.
class DeviceMemory {
public:
    explicit DeviceMemory(std::size_t bytes);
    explicit DeviceMemory(const Bytes &content);  // which any stream sees
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory &) = delete;

    CUdeviceptr address() const { return address_; }
    std::size_t bytes() const { return bytes_; }
    Bytes read() const;  // by a synchronous copy

private:
    CUdeviceptr address_ = 0;
    const std::size_t bytes_;
};

class PinnedMemory {
public:
    explicit PinnedMemory(std::size_t bytes);
    explicit PinnedMemory(const Bytes &content);
    ~PinnedMemory();
    PinnedMemory(const PinnedMemory &) = delete;

    unsigned char *data() const { return data_; }
    CUdeviceptr address() const { return address_of(data_); }
    void fill(const Bytes &content) const;
    Bytes read() const { return Bytes(data_, data_ + bytes_); }

private:
    unsigned char *data_ = nullptr;
    const std::size_t bytes_;
};

// How many pages of the range the CPU has in its page table (/proc/self/pagemap).
std::size_t present_pages(const void *begin, std::size_t bytes);

class ManagedMemory {
public:
    explicit ManagedMemory(std::size_t bytes);
    ~ManagedMemory();
    ManagedMemory(const ManagedMemory &) = delete;

    unsigned char *data() const { return reinterpret_cast<unsigned char *>(address_); }
    CUdeviceptr address() const { return address_; }

private:
    CUdeviceptr address_ = 0;
};

class Stream {
public:
    explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING);
    ~Stream();
    Stream(const Stream &) = delete;

    operator CUstream() const { return handle_; }

private:
    CUstream handle_ = nullptr;
};

class Event {
public:
    explicit Event(unsigned flags = CU_EVENT_DISABLE_TIMING);
    ~Event();
    Event(const Event &) = delete;

    operator CUevent() const { return handle_; }

private:
    CUevent handle_ = nullptr;
};

// Holds a stream back until it is opened. Make it after all memory of the test: allocations may
// wait for the stream. It opens by itself after some seconds, so that a driver which waits where it
// should not makes a test fail, not hang.
class Gate {
public:
    Gate();
    ~Gate();  // opens
    Gate(const Gate &) = delete;

    // What is queued in the stream from now on waits for the gate.
    void close(CUstream stream);

    void open();

    // Opens after a while, from another thread.
    void open_later(std::chrono::milliseconds delay);

    bool opened() const { return opened_; }

    // A 32-bit word that is 0 until the gate opens.
    CUdeviceptr word() const { return word_.address(); }

private:
    void watch();

    PinnedMemory word_;
    std::atomic<bool> opened_{false};
    std::atomic<std::chrono::steady_clock::rep> open_at_;
    std::thread watch_;
};

// A gate in the legacy default stream, which has no value to wait for in CUDA, by way of another
// stream.
class LegacyGate {
public:
    LegacyGate();

private:
    Stream stream_;
    Event event_;

public:
    Gate gate;
};

// Sees what is in device memory now, by a stream that waits for nobody. Make it before a gate.
class Onlooker {
public:
    explicit Onlooker(std::size_t bytes) : seen_(bytes), bytes_(bytes) {}

    Bytes look(CUdeviceptr address) const;

    // What was begun in `held`, a stream that the gate holds back, changes the memory when the gate
    // opens.
    void expect_change(CUdeviceptr address, const Bytes &before, const Bytes &after, Gate &gate,
                       CUstream held) const;

private:
    PinnedMemory seen_;
    Stream stream_;
    const std::size_t bytes_;
};
