// SPDX-License-Identifier: BSD-3-Clause
// cuMemcpyBatchAsync, in the form of CUDA 12.8 and in that of 13.0.
#include "test_support.hpp"

namespace {

constexpr std::size_t kCopies = 8;
constexpr std::size_t kBytes = 1000;

// A batch whose arrays live as long as it does.
struct Batch {
    std::vector<CUdeviceptr> to;
    std::vector<CUdeviceptr> from;
    std::vector<std::size_t> bytes;
    std::vector<CUmemcpyAttributes> attributes;
    std::vector<std::size_t> attribute_begins;

    void add(CUdeviceptr its_to, CUdeviceptr its_from, std::size_t its_bytes) {
        to.push_back(its_to);
        from.push_back(its_from);
        bytes.push_back(its_bytes);
    }
    void add_attribute(std::size_t begin, CUmemcpySrcAccessOrder order) {
        CUmemcpyAttributes attribute{};
        attribute.srcAccessOrder = order;
        attributes.push_back(attribute);
        attribute_begins.push_back(begin);
    }
    CUresult run(CUstream stream) {
        return cu().copy_batch(to.data(), from.data(), bytes.data(), to.size(), attributes.data(),
                               attribute_begins.data(), attributes.size(), stream);
    }
    CUresult run_12080(CUstream stream, std::size_t *failed) {
        return cu().copy_batch_12080(to.data(), from.data(), bytes.data(), to.size(),
                                     attributes.data(), attribute_begins.data(), attributes.size(),
                                     failed, stream);
    }
};

class BatchTest : public DriverTest {
protected:
    void SetUp() override {
        if (cu().copy_batch == nullptr || cu().copy_batch_12080 == nullptr) {
            GTEST_SKIP() << "the driver is older than that of CUDA 13.0";
        }
        DriverTest::SetUp();
    }
};

// Pieces of one buffer to the pieces of another one, last piece first.
Batch reversed_pieces(const DeviceMemory &to, const DeviceMemory &from) {
    Batch batch;
    for (std::size_t i = 0; i < kCopies; ++i) {
        batch.add(to.address() + (kCopies - 1 - i) * kBytes, from.address() + i * kBytes, kBytes);
    }
    batch.add_attribute(0, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
    return batch;
}

Bytes reversed_pieces(const Bytes &data) {
    Bytes reversed;
    for (std::size_t i = kCopies; i-- > 0;) {
        reversed.insert(reversed.end(), data.data() + i * kBytes, data.data() + (i + 1) * kBytes);
    }
    return reversed;
}

TEST_F(BatchTest, every_copy_arrives) {
    const Bytes data = fresh_bytes(kCopies * kBytes);
    DeviceMemory from(data);
    DeviceMemory to(data.size());
    Stream stream;
    ASSERT_CU(reversed_pieces(to, from).run(stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(reversed_pieces(data), to.read());
}

TEST_F(BatchTest, every_copy_arrives_in_the_older_form) {
    const Bytes data = fresh_bytes(kCopies * kBytes);
    DeviceMemory from(data);
    DeviceMemory to(data.size());
    Stream stream;
    std::size_t failed = 77;
    ASSERT_CU(reversed_pieces(to, from).run_12080(stream, &failed));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(reversed_pieces(data), to.read());
}

TEST_F(BatchTest, copies_of_all_directions_with_several_attributes_go_together) {
    const Bytes host_data = fresh_bytes(kBytes);
    const Bytes device_data = fresh_bytes(kBytes);
    PinnedMemory from_host(host_data);
    DeviceMemory from_device(device_data);
    PinnedMemory to_host(kBytes);
    DeviceMemory to_device(kBytes);
    DeviceMemory also_to_device(kBytes);
    Stream stream;
    Batch batch;
    batch.add(to_device.address(), from_host.address(), kBytes);
    batch.add(to_host.address(), from_device.address(), kBytes);
    batch.add(also_to_device.address(), from_device.address(), kBytes);
    batch.add_attribute(0, CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
    batch.add_attribute(1, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
    ASSERT_CU(batch.run(stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(host_data, to_device.read());
    EXPECT_EQ(device_data, to_host.read());
    EXPECT_EQ(device_data, also_to_device.read());
}

TEST_F(BatchTest, a_batch_runs_in_the_order_of_its_stream) {
    const Bytes last = fresh_bytes(kCopies * kBytes);
    PinnedMemory source(fresh_bytes(last.size()));
    PinnedMemory result(last.size());
    DeviceMemory from(last.size());
    DeviceMemory to(last.size());
    Stream stream;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuMemcpyAsync(from.address(), source.address(), last.size(), stream));
    ASSERT_CU(reversed_pieces(to, from).run(stream));
    ASSERT_CU(cu().cuMemcpyAsync(result.address(), to.address(), last.size(), stream));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
    source.fill(last);
    ASSERT_FALSE(gate.opened()) << "a call waited";
    gate.open();
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(reversed_pieces(last), result.read());
}

TEST_F(BatchTest, a_source_may_go_when_the_call_returns_if_the_attribute_says_so) {
    const Bytes data = fresh_bytes(kBytes);
    Bytes from = data;
    DeviceMemory to(kBytes);
    Stream stream;
    Batch batch;
    batch.add(to.address(), address_of(from.data()), kBytes);
    batch.add_attribute(0, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
    ASSERT_CU(batch.run(stream));
    from = fresh_bytes(kBytes);
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(data, to.read());
}

TEST_F(BatchTest, bad_attributes_are_refused) {
    DeviceMemory from(kCopies * kBytes);
    DeviceMemory to(kCopies * kBytes);
    Stream stream;
    Batch late = reversed_pieces(to, from);
    late.attribute_begins[0] = 1;  // the manual: the first entry must be 0
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, late.run(stream));
    Batch without_order = reversed_pieces(to, from);
    without_order.attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, without_order.run(stream));
}

TEST_F(BatchTest, the_legacy_default_stream_is_refused) {
    DeviceMemory from(kCopies * kBytes);
    DeviceMemory to(kCopies * kBytes);
    EXPECT_NE(CUDA_SUCCESS, reversed_pieces(to, from).run(nullptr));
    EXPECT_NE(CUDA_SUCCESS, reversed_pieces(to, from).run(CU_STREAM_LEGACY));
}

TEST_F(BatchTest, GetProcAddress_has_it_since_CUDA_12_8) {
    void *address = nullptr;
    ASSERT_CU(cu().cuGetProcAddress("cuMemcpyBatchAsync", &address, 12080, 0, nullptr));
    EXPECT_NE(nullptr, address);
    ASSERT_CU(cu().cuGetProcAddress("cuMemcpyBatchAsync", &address, 13000, 0, nullptr));
    EXPECT_NE(nullptr, address);
    cu().cuGetProcAddress("cuMemcpyBatchAsync", &address, 12000, 0, nullptr);
    EXPECT_EQ(nullptr, address);
}

}  // namespace
