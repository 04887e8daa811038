// SPDX-License-Identifier: BSD-3-Clause
// What the tests share.
#include "test_support.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <unistd.h>

namespace {

// After which a gate opens by itself.
constexpr auto kPatience = std::chrono::seconds(5);

std::string hex_digits(const char *bytes, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(bytes[i]));
        text += digits;
    }
    return text;
}

}  // namespace

testing::AssertionResult succeeded(const char *expression, CUresult result) {
    if (result == CUDA_SUCCESS) {
        return testing::AssertionSuccess();
    }
    const char *name = nullptr;
    cu().cuGetErrorName(result, &name);
    return testing::AssertionFailure()
           << expression << " gives " << (name != nullptr ? name : "an unknown error") << " ("
           << static_cast<int>(result) << ")";
}

bool start_cuda(CUdevice device, CUcontext *context) {
    return cu().cuInit(0) == CUDA_SUCCESS &&
           cu().cuDevicePrimaryCtxRetain(context, device) == CUDA_SUCCESS &&
           cu().cuCtxSetCurrent(*context) == CUDA_SUCCESS;
}

int device_count() {
    int count = 0;
    cu().cuDeviceGetCount(&count);
    return count;
}

bool has_peer() {
    int can_access = 0;
    return device_count() >= 2 && cu().cuDeviceCanAccessPeer(&can_access, 0, 1) == CUDA_SUCCESS &&
           can_access != 0;
}

std::string hex(const CUuuid &uuid) {
    return hex_digits(uuid.bytes, sizeof(uuid.bytes));
}

std::string gpu_name(const CUuuid &uuid) {
    const std::string text = hex(uuid);
    return "GPU-" + text.substr(0, 8) + "-" + text.substr(8, 4) + "-" + text.substr(12, 4) + "-" +
           text.substr(16, 4) + "-" + text.substr(20);
}

std::string to_text(const CUipcMemHandle &handle) {
    return hex_digits(handle.reserved, sizeof(handle.reserved));
}

CUresult open_handle(CUdeviceptr *address, const std::string &text) {
    CUipcMemHandle handle;
    for (std::size_t i = 0; i < sizeof(handle.reserved); ++i) {
        handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    return cu().cuIpcOpenMemHandle(address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

Bytes fresh_bytes(std::size_t count) {
    static std::mt19937_64 random(std::random_device{}());
    Bytes bytes(count);
    for (auto &byte : bytes) {
        byte = static_cast<unsigned char>(random() >> 24);
    }
    return bytes;
}

void DriverTest::SetUp() {
    ASSERT_TRUE(start_cuda(0, &context_)) << "cannot use device 0";
}

void DriverTest::TearDown() {
    if (context_ != nullptr) {
        EXPECT_CU(cu().cuCtxSetCurrent(context_));  // the test may have taken it away
        EXPECT_CU(cu().cuCtxSynchronize());
        EXPECT_CU(cu().cuCtxSetCurrent(nullptr));  // stays retained: a context takes long to make
    }
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    EXPECT_CU(cu().cuMemAlloc(&address_, bytes));
}

DeviceMemory::DeviceMemory(const Bytes &content) : DeviceMemory(content.size()) {
    EXPECT_CU(cu().cuMemcpyHtoD(address_, content.data(), bytes_));
    EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_LEGACY));
}

DeviceMemory::~DeviceMemory() {
    EXPECT_CU(cu().cuMemFree(address_));
}

Bytes DeviceMemory::read() const {
    Bytes content(bytes_);
    EXPECT_CU(cu().cuMemcpyDtoH(content.data(), address_, bytes_));
    return content;
}

PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    void *pointer = nullptr;
    EXPECT_CU(
        cu().cuMemHostAlloc(&pointer, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    data_ = static_cast<unsigned char *>(pointer);
    std::memset(data_, 0, bytes);
}

PinnedMemory::PinnedMemory(const Bytes &content) : PinnedMemory(content.size()) {
    fill(content);
}

PinnedMemory::~PinnedMemory() {
    EXPECT_CU(cu().cuMemFreeHost(data_));
}

void PinnedMemory::fill(const Bytes &content) const {
    std::memcpy(data_, content.data(), content.size());
}

std::size_t present_pages(const void *begin, std::size_t bytes) {
    constexpr std::size_t kPageBytes = 4096;
    std::vector<std::uint64_t> entries(bytes / kPageBytes);
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const auto first = address_of(begin) / kPageBytes * sizeof(entries[0]);
    const auto wanted = static_cast<ssize_t>(entries.size() * sizeof(entries[0]));
    EXPECT_EQ(wanted, pread(pagemap, entries.data(), static_cast<std::size_t>(wanted),
                            static_cast<off_t>(first)));
    close(pagemap);
    std::size_t present = 0;
    for (const std::uint64_t entry : entries) {
        present += entry >> 63;
    }
    return present;
}

ManagedMemory::ManagedMemory(std::size_t bytes) {
    EXPECT_CU(cu().cuMemAllocManaged(&address_, bytes, CU_MEM_ATTACH_GLOBAL));
}

ManagedMemory::~ManagedMemory() {
    EXPECT_CU(cu().cuMemFree(address_));
}

Stream::Stream(unsigned flags) {
    EXPECT_CU(cu().cuStreamCreate(&handle_, flags));
}

Stream::~Stream() {
    EXPECT_CU(cu().cuStreamSynchronize(handle_));
    EXPECT_CU(cu().cuStreamDestroy(handle_));
}

Event::Event(unsigned flags) {
    EXPECT_CU(cu().cuEventCreate(&handle_, flags));
}

Event::~Event() {
    EXPECT_CU(cu().cuEventDestroy(handle_));
}

Gate::Gate()
    : word_(sizeof(cuuint32_t)),
      open_at_((std::chrono::steady_clock::now() + kPatience).time_since_epoch().count()),
      watch_([this] { watch(); }) {}

Gate::~Gate() {
    open();
    watch_.join();
    EXPECT_CU(cu().cuCtxSynchronize());  // the word must outlive those who wait for it
}

void Gate::close(CUstream stream) {
    EXPECT_CU(cu().cuStreamWaitValue32(stream, word_.address(), 1, CU_STREAM_WAIT_VALUE_EQ));
}

void Gate::open() {
    opened_ = true;
    __atomic_store_n(reinterpret_cast<cuuint32_t *>(word_.data()), 1u, __ATOMIC_RELEASE);
}

void Gate::open_later(std::chrono::milliseconds delay) {
    open_at_ = (std::chrono::steady_clock::now() + delay).time_since_epoch().count();
}

void Gate::watch() {
    while (!opened_) {
        if (std::chrono::steady_clock::now().time_since_epoch().count() >= open_at_) {
            open();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

LegacyGate::LegacyGate() {
    gate.close(stream_);
    EXPECT_CU(cu().cuEventRecord(event_, stream_));
    EXPECT_CU(cu().cuStreamWaitEvent(CU_STREAM_LEGACY, event_, 0));
}

Bytes Onlooker::look(CUdeviceptr address) const {
    EXPECT_CU(cu().cuMemcpyDtoHAsync(seen_.data(), address, bytes_, stream_));
    EXPECT_CU(cu().cuStreamSynchronize(stream_));
    return seen_.read();
}

void Onlooker::expect_change(CUdeviceptr address, const Bytes &before, const Bytes &after,
                             Gate &gate, CUstream held) const {
    EXPECT_EQ(before, look(address));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(held));
    EXPECT_FALSE(gate.opened()) << "a call waited";
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(held));
    EXPECT_EQ(after, look(address));
}
