// SPDX-License-Identifier: BSD-3-Clause
// The order of operations within streams and between them.
#include "test_support.hpp"

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {

using OrderTest = DriverTest;

constexpr std::size_t kBytes = 1 << 20;

// Device buffer -> pinned buffer: to see when a copy has run.
struct Transfer {
    const Bytes data = fresh_bytes(kBytes);
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory from{data};
    PinnedMemory to{before};

    void start(CUstream stream) const {
        ASSERT_CU(cu().cuMemcpyAsync(to.address(), from.address(), kBytes, stream));
    }
    bool arrived() const { return to.read() == data; }
    bool untouched() const { return to.read() == before; }
};

// Gives an operation that should wait the time to show that it does not.
void give_it_time() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST_F(OrderTest, operations_of_a_stream_run_one_after_the_other) {
    PinnedMemory first(kBytes);
    DeviceMemory second(kBytes);
    DeviceMemory third(kBytes);
    PinnedMemory last(kBytes);
    Stream stream;
    for (int round = 0; round < 20; ++round) {
        const Bytes now = fresh_bytes(kBytes);
        first.fill(now);
        ASSERT_CU(cu().cuMemcpyAsync(second.address(), first.address(), kBytes, stream));
        ASSERT_CU(cu().cuMemcpyAsync(third.address(), second.address(), kBytes, stream));
        ASSERT_CU(cu().cuMemcpyAsync(last.address(), third.address(), kBytes, stream));
        ASSERT_CU(cu().cuStreamSynchronize(stream));
        ASSERT_EQ(now, last.read()) << round;
    }
}

TEST_F(OrderTest, streams_do_not_wait_for_each_other) {
    Transfer held;
    Transfer free;
    Stream stream;
    Stream other;
    Gate gate;
    gate.close(stream);
    held.start(stream);
    free.start(other);
    EXPECT_CU(cu().cuStreamSynchronize(other));
    EXPECT_TRUE(free.arrived());
    EXPECT_TRUE(held.untouched());
    EXPECT_FALSE(gate.opened()) << "the other stream waited";
}

TEST_F(OrderTest, a_stream_waits_for_an_event_of_another) {
    Transfer transfer;
    Stream stream;
    Stream other;
    Event event;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuEventRecord(event, stream));
    ASSERT_CU(cu().cuStreamWaitEvent(other, event, 0));
    transfer.start(other);
    give_it_time();
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(other));
    EXPECT_TRUE(transfer.untouched());
    EXPECT_FALSE(gate.opened());
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(other));
    EXPECT_TRUE(transfer.arrived());
}

TEST_F(OrderTest, waiting_for_an_event_means_its_last_record_before) {
    Transfer transfer;
    Stream stream;
    Stream other;
    Event event;
    Gate gate;
    ASSERT_CU(cu().cuEventRecord(event, stream));
    ASSERT_CU(cu().cuStreamWaitEvent(other, event, 0));
    gate.close(stream);
    ASSERT_CU(cu().cuEventRecord(event, stream));  // later: not waited for
    transfer.start(other);
    EXPECT_CU(cu().cuStreamSynchronize(other));
    EXPECT_TRUE(transfer.arrived());
    EXPECT_FALSE(gate.opened()) << "the stream waited";
}

TEST_F(OrderTest, the_legacy_default_stream_waits_for_blocking_streams) {
    Transfer transfer;
    Stream blocking(CU_STREAM_DEFAULT);
    Gate gate;
    gate.close(blocking);
    transfer.start(nullptr);
    give_it_time();
    EXPECT_TRUE(transfer.untouched());
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
    EXPECT_FALSE(gate.opened());
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(nullptr));
    EXPECT_TRUE(transfer.arrived());
}

TEST_F(OrderTest, the_legacy_default_stream_does_not_wait_for_non_blocking_streams) {
    Transfer transfer;
    Stream non_blocking;
    Gate gate;
    gate.close(non_blocking);
    transfer.start(nullptr);
    EXPECT_CU(cu().cuStreamSynchronize(nullptr));
    EXPECT_TRUE(transfer.arrived());
    EXPECT_FALSE(gate.opened()) << "the default stream waited";
}

TEST_F(OrderTest, blocking_streams_wait_for_the_legacy_default_stream) {
    Transfer transfer;
    Transfer free;
    Stream blocking(CU_STREAM_DEFAULT);
    Stream non_blocking;
    Stream gated;
    Event event;
    Gate gate;
    gate.close(gated);
    ASSERT_CU(cu().cuEventRecord(event, gated));
    ASSERT_CU(cu().cuStreamWaitEvent(CU_STREAM_LEGACY, event, 0));
    transfer.start(blocking);
    free.start(non_blocking);
    EXPECT_CU(cu().cuStreamSynchronize(non_blocking));
    give_it_time();
    EXPECT_TRUE(free.arrived());
    EXPECT_TRUE(transfer.untouched());
    EXPECT_FALSE(gate.opened()) << "the non-blocking stream waited";
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(blocking));
    EXPECT_TRUE(transfer.arrived());
}

TEST_F(OrderTest, synchronizing_the_context_waits_for_all_streams) {
    Transfer one;
    Transfer two;
    Stream stream;
    Stream other;
    Gate gate;
    gate.close(stream);
    one.start(stream);
    two.start(other);
    gate.open_later(std::chrono::milliseconds(30));
    EXPECT_CU(cu().cuCtxSynchronize());
    EXPECT_TRUE(gate.opened());
    EXPECT_TRUE(one.arrived());
    EXPECT_TRUE(two.arrived());
}

TEST_F(OrderTest, a_destroyed_stream_still_does_its_work) {
    Transfer transfer;
    CUstream stream = nullptr;
    ASSERT_CU(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    {
        Gate gate;
        gate.close(stream);
        transfer.start(stream);
        EXPECT_CU(cu().cuStreamDestroy(stream));
        EXPECT_FALSE(gate.opened()) << "the call waited";
    }  // which also synchronizes the context
    EXPECT_TRUE(transfer.arrived());
}

// What a thread does by itself: sends its data to the device and back, time and again.
void send_to_and_fro(CUcontext context, unsigned char mark) {
    ASSERT_CU(cu().cuCtxSetCurrent(context));
    constexpr std::size_t kSmall = 8192;
    const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, kSmall),
                                                             std::free);
    auto *registered = static_cast<unsigned char *>(memory.get());
    for (int round = 0; round < 50; ++round) {
        const Bytes data(kSmall, static_cast<unsigned char>(mark + round));
        DeviceMemory device(data);
        PinnedMemory pinned(kSmall);
        Stream stream;
        Event event;
        ASSERT_CU(cu().cuMemHostRegister(registered, kSmall, 0));
        ASSERT_CU(cu().cuMemcpyAsync(pinned.address(), device.address(), kSmall, stream));
        ASSERT_CU(cu().cuMemcpyAsync(device.address(), pinned.address(), kSmall, stream));
        ASSERT_CU(cu().cuMemcpyAsync(address_of(registered), device.address(), kSmall, stream));
        ASSERT_CU(cu().cuEventRecord(event, stream));
        while (cu().cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
            unsigned type = 0;
            ASSERT_CU(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                 device.address()));
            ASSERT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE), type);
        }
        ASSERT_EQ(data, Bytes(registered, registered + kSmall)) << round;
        ASSERT_CU(cu().cuMemHostUnregister(registered));
    }
}

TEST_F(OrderTest, threads_use_one_context_side_by_side) {
    std::vector<std::thread> threads;
    for (unsigned char thread = 0; thread < 4; ++thread) {
        threads.emplace_back(send_to_and_fro, context_, static_cast<unsigned char>(60 * thread));
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST_F(OrderTest, a_written_value_shows_that_what_came_before_is_complete) {
    Transfer transfer;
    PinnedMemory words(16);
    Stream stream;
    transfer.start(stream);
    ASSERT_CU(cu().cuStreamWriteValue32(stream, words.address(), 0x12345678, 0));
    ASSERT_CU(cu().cuStreamWriteValue64(stream, words.address() + 8, 0x123456789abcdef0, 0));
    const auto *first = reinterpret_cast<const cuuint32_t *>(words.data());
    const auto *second = reinterpret_cast<const cuuint64_t *>(words.data() + 8);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (__atomic_load_n(second, __ATOMIC_ACQUIRE) == 0 &&
           std::chrono::steady_clock::now() < give_up) {
        std::this_thread::yield();
    }
    EXPECT_EQ(0x123456789abcdef0u, __atomic_load_n(second, __ATOMIC_ACQUIRE));
    EXPECT_EQ(0x12345678u, __atomic_load_n(first, __ATOMIC_ACQUIRE));
    EXPECT_TRUE(transfer.arrived());
}

TEST_F(OrderTest, a_stream_waits_for_a_value_in_device_memory) {
    Transfer transfer;
    DeviceMemory word(Bytes(8, 0));
    Stream stream;
    Stream writer;
    ASSERT_CU(cu().cuStreamWaitValue64(stream, word.address(), 5, CU_STREAM_WAIT_VALUE_GEQ));
    transfer.start(stream);
    give_it_time();
    EXPECT_TRUE(transfer.untouched());
    ASSERT_CU(cu().cuStreamWriteValue64(writer, word.address(), 6, 0));
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_TRUE(transfer.arrived());
}

}  // namespace
