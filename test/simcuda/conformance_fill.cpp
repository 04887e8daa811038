// SPDX-License-Identifier: BSD-3-Clause
// Copies within a device and memsets, by each call and form: when the call returns, when the bytes
// are there, and in which default stream that is (manual of the driver API, "API synchronization
// behavior" and "Stream synchronization behavior").
#include "fill_calls.hpp"

namespace {

using std::chrono::milliseconds;

class FillTest : public DriverTest, public testing::WithParamInterface<FillCall> {
protected:
    const Bytes data_ = fresh_bytes(FillBuffers::kBytes);
    const Bytes before_ = fresh_bytes(FillBuffers::kBytes);

    // In the default stream of that form of the function.
    CUresult run(void *function, const DeviceMemory &to, const DeviceMemory &from) const {
        return function == nullptr
                   ? CUDA_ERROR_NOT_FOUND
                   : GetParam().run(function, {to.address(), from.address(), context_}, nullptr);
    }
    static void *legacy_form() { return cu().find_symbol(GetParam().symbol); }
    static void *per_thread_form() {
        return cu().find_symbol(GetParam().symbol + GetParam().per_thread_form);
    }
    Bytes expected() const { return GetParam().expected(data_); }

    void expect_no_other_stream_matters_to(void *function) const {
        DeviceMemory from(data_);
        DeviceMemory to(before_);
        Onlooker onlooker(FillBuffers::kBytes);
        Stream blocking(CU_STREAM_DEFAULT);
        Gate gate;
        gate.close(blocking);  // for which the legacy stream would wait
        ASSERT_CU(run(function, to, from));
        EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
        EXPECT_EQ(expected(), onlooker.look(to.address()));
        EXPECT_FALSE(gate.opened()) << "a call waited";
    }
};

class SynchronousFillTest : public FillTest {};

TEST_P(FillTest, returns_before_it_is_complete) {
    DeviceMemory from(data_);
    DeviceMemory to(before_);
    Onlooker onlooker(FillBuffers::kBytes);
    LegacyGate legacy;
    ASSERT_CU(run(legacy_form(), to, from));
    onlooker.expect_change(to.address(), before_, expected(), legacy.gate, CU_STREAM_LEGACY);
}

TEST_P(SynchronousFillTest, is_complete_when_it_returns_with_SYNC_MEMOPS) {
    DeviceMemory from(data_);
    DeviceMemory to(before_);
    Onlooker onlooker(FillBuffers::kBytes);
    unsigned on = 1;
    ASSERT_CU(cu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, to.address()));
    LegacyGate legacy;
    legacy.gate.open_later(milliseconds(30));
    ASSERT_CU(run(legacy_form(), to, from));
    EXPECT_TRUE(legacy.gate.opened()) << "the call did not wait";
    EXPECT_EQ(expected(), onlooker.look(to.address()));
}

TEST_P(FillTest, waits_for_the_default_stream_of_the_thread_in_the_form_for_it) {
    DeviceMemory from(data_);
    DeviceMemory to(before_);
    Onlooker onlooker(FillBuffers::kBytes);
    Gate gate;
    gate.close(CU_STREAM_PER_THREAD);
    ASSERT_CU(run(per_thread_form(), to, from));
    onlooker.expect_change(to.address(), before_, expected(), gate, CU_STREAM_PER_THREAD);
}

TEST_P(FillTest, does_not_wait_for_other_streams_in_the_form_for_the_default_stream_of_the_thread) {
    expect_no_other_stream_matters_to(per_thread_form());
}

TEST_P(FillTest, is_found_in_the_form_for_the_default_stream_of_the_thread) {
    void *function = nullptr;
    ASSERT_CU(cu().cuGetProcAddress(GetParam().name().c_str(), &function, 12000,
                                    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    expect_no_other_stream_matters_to(function);
}

std::vector<FillCall> synchronous_fill_calls() {
    std::vector<FillCall> calls;
    for (const FillCall &call : fill_calls()) {
        if (call.synchronous()) {
            calls.push_back(call);
        }
    }
    return calls;
}

const auto name_of = [](const auto &info) { return info.param.name(); };
INSTANTIATE_TEST_SUITE_P(, FillTest, testing::ValuesIn(fill_calls()), name_of);
INSTANTIATE_TEST_SUITE_P(, SynchronousFillTest, testing::ValuesIn(synchronous_fill_calls()),
                         name_of);

}  // namespace
