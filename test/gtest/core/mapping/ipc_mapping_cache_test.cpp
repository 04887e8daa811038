// SPDX-License-Identifier: BSD-3-Clause
// IpcMappingCache and export_memory: when a mapping is asked for, what is opened and closed, and
// that a name stands for one allocation only. The owner is another process, made before this one
// initialises CUDA.
#include "core/base/process.hpp"
#include "core/copy/copy_any.hpp"
#include "core/mapping/memory_export.hpp"
#include "core/mapping/ipc_mapping_cache.hpp"

#include "test/gtest/core/gpu_support.hpp"

#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 4096;
constexpr int kSkipped = 77;

/** What the owner says of a buffer. */
struct Export {
    BufferKey name;
    CUipcMemHandle handle;
};

int devices() {
    int count = 0;
    return CudaDriver::get()->init(0) == CUDA_SUCCESS &&
                   CudaDriver::get()->device_get_count(&count) == CUDA_SUCCESS
               ? count
               : 0;
}

/** Exports as many buffers as it is asked for, with the patterns 0, 1, ..., until it is killed. The
 * GPU is another one than that of the test, if there is one. */
int own(const Channel &channel) {
    size_t count = 0;
    CHECK(enter_primary_context(devices() > 1 ? 1 : 0) && channel.receive(&count));
    std::deque<Buffer> buffers;
    for (size_t i = 0; i < count; ++i) {
        Buffer &buffer = buffers.emplace_back(MemoryKind::device, kBytes);
        buffer.fill(i);
        const BufferKey name = make_buffer_key(query_memory(buffer.data() + i % kBytes));
        CHECK(name.can_be_mapped());
        const std::optional<MappingHandle> handle = export_memory(name);
        CHECK(handle && handle->sharing == BufferKey::Sharing::ipc_handle);
        channel.send(Export{name, handle->ipc});
    }
    channel.receive(&count);
    return 0;
}

/** An owner, and the context of this process. */
struct Scene {
    Scene() : owner(own) {}
    bool start(size_t buffers) {
        owner.channel().send(buffers);
        exports.resize(buffers);
        for (Export &exported : exports) {
            if (!owner.channel().receive(&exported)) {
                return false;
            }
        }
        return enter_primary_context(0) != nullptr;
    }
    CUcontext context() const { return current_context(); }
    bool ask(size_t i, double seconds = 1, bool ready = false) {
        return mappings.missed(exports[i].name, context(), seconds, ready);
    }
    void answer(size_t i) {
        const MappingHandle handle = {BufferKey::Sharing::ipc_handle, exports[i].handle,
                                      UniqueFd()};
        mappings.receive(exports[i].name.owner, exports[i].name.buffer_id, &handle);
    }
    std::shared_ptr<PeerMapping> find(size_t i) {
        return mappings.find(exports[i].name, context());
    }
    /** The bytes of a buffer, read through its mapping. */
    bool holds(size_t i, const PeerMapping &mapping) const {
        std::vector<unsigned char> bytes(kBytes);
        const unsigned char *there = mapping.locate(exports[i].name, exports[i].name.base, kBytes);
        return there != nullptr && copy_any(bytes.data(), there, kBytes) == Status::ok &&
               pattern_mismatch(bytes.data(), kBytes, i) == kBytes;
    }

    Child owner;
    std::vector<Export> exports;
    IpcMappingCache &mappings = IpcMappingCache::instance();
};

FreshProcess asked_once("mapping-asked-once", [] {
    Scene scene;
    CHECK(scene.start(2));
    CHECK(scene.find(0) == nullptr);
    // 1 ms of what was missed pays for it; nothing of it is asked for twice.
    CHECK(!scene.ask(0, 0.9e-3));
    CHECK(!scene.ask(1, 0.5e-3));
    CHECK(scene.find(0) == nullptr);
    CHECK(scene.ask(0, 0.2e-3));
    CHECK(!scene.ask(0, 1));
    CHECK(scene.find(0) == nullptr && calls("cuIpcOpenMemHandle") == 0);
    scene.answer(0);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    const std::shared_ptr<PeerMapping> mapping = scene.find(0);
    CHECK(mapping != nullptr && scene.holds(0, *mapping));
    CHECK(!scene.ask(0, 1));
    scene.answer(0);  // nobody asked
    scene.answer(1);
    CHECK(calls("cuIpcOpenMemHandle") == 1 && scene.find(1) == nullptr);
    return 0;
});

TEST(IpcMappingCacheTest, HandleIsAskedForOnceWhenItPays) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    EXPECT_EQ(asked_once.run(), 0);
}

FreshProcess located("mapping-located", [] {
    Scene scene;
    CHECK(scene.start(1) && scene.ask(0));
    scene.answer(0);
    const BufferKey &name = scene.exports[0].name;
    const std::shared_ptr<PeerMapping> mapping = scene.find(0);
    CHECK(mapping != nullptr);
    unsigned char *data = mapping->locate(name, name.base, name.length);
    CHECK(data != nullptr);
    CHECK(mapping->locate(name, name.base + name.length - 1, 1) == data + name.length - 1);
    CHECK(mapping->locate(name, name.base + name.length, 0) == data + name.length);
    CHECK(mapping->locate(name, name.base + 1, name.length) == nullptr);
    CHECK(mapping->locate(name, name.base + name.length + 1, 0) == nullptr);
    CHECK(mapping->locate(name, name.base - 1, 1) == nullptr);
    CHECK(mapping->locate(name, name.base, ~uint64_t{0}) == nullptr);
    CHECK(mapping->locate(name, name.base + 1, ~uint64_t{0}) == nullptr);
    CHECK(mapping->locate(name, 0, 1) == nullptr);
    CHECK(mapping->locate(name, ~uint64_t{0}, 1) == nullptr);
    return 0;
});

TEST(IpcMappingCacheTest, NothingLiesOutsideOfTheAllocation) {
    EXPECT_EQ(located.run(), 0);
}

FreshProcess lied("mapping-lied", [] {
    Scene scene;
    CHECK(scene.start(2));
    const LogCapture log;
    // A copy beyond the end of what is mapped would be a fault of the GPU.
    scene.exports[0].name.length += 64u << 20;
    CHECK(scene.ask(0));
    scene.answer(0);
    CHECK(scene.find(0) == nullptr);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    CHECK(await_background_calls("cuIpcCloseMemHandle", 1));
    CHECK(!scene.ask(0));  // refused for good
    CHECK(scene.ask(1));
    memset(&scene.exports[1].handle, 0x5a, sizeof(CUipcMemHandle));
    scene.answer(1);
    CHECK(scene.find(1) == nullptr && !scene.ask(1));
    return 0;
});

TEST(IpcMappingCacheTest, WrongLengthOrHandleIsRefused) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    EXPECT_EQ(lied.run(), 0);
}

FreshProcess forgotten("mapping-forgotten", [] {
    Scene scene;
    CHECK(scene.start(4));
    for (size_t i = 0; i < 4; ++i) {
        CHECK(scene.ask(i));
        scene.answer(i);
    }
    const uint64_t owner = scene.exports[0].name.owner;
    std::shared_ptr<PeerMapping> held = scene.find(0);
    scene.mappings.forget_buffer(owner, scene.exports[0].name.buffer_id);
    CHECK(scene.find(0) == nullptr && scene.find(1) != nullptr);
    CHECK(await_background_calls("cuIpcCloseMemHandle", 0));
    CHECK(scene.holds(0, *held));  // a copy under way still needs it
    held.reset();
    CHECK(await_background_calls("cuIpcCloseMemHandle", 1));
    scene.mappings.forget_process(owner + 1);
    scene.mappings.forget_buffer(owner + 1, scene.exports[1].name.buffer_id);
    scene.mappings.forget_buffer(owner, 12345678);
    CHECK(scene.find(1) != nullptr);
    CHECK(await_background_calls("cuIpcCloseMemHandle", 1));
    scene.mappings.forget_process(owner);
    CHECK(await_background_calls("cuIpcCloseMemHandle", 4));
    for (size_t i = 0; i < 4; ++i) {
        CHECK(scene.find(i) == nullptr);
    }
    CHECK(scene.ask(1));  // it may be asked for anew
    scene.answer(1);
    CHECK(scene.find(1) != nullptr && scene.holds(1, *scene.find(1)));
    return 0;
});

TEST(IpcMappingCacheTest, ForgettingClosesWithTheLastCopy) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    EXPECT_EQ(forgotten.run(), 0);
}

FreshProcess bounded("mapping-bounded", [] {
    constexpr size_t kLimit = 128;
    constexpr size_t kBuffers = kLimit + 12;
    Scene scene;
    CHECK(scene.start(kBuffers));
    for (size_t i = 0; i < kBuffers; ++i) {
        CHECK(scene.ask(i));
        scene.answer(i);
        const std::shared_ptr<PeerMapping> mapping = scene.find(i);
        CHECK(mapping != nullptr && scene.holds(i, *mapping));
        CHECK(scene.find(0) != nullptr);  // always in use
    }
    CHECK(calls("cuIpcOpenMemHandle") == kBuffers);
    CHECK(await_background_calls("cuIpcCloseMemHandle", kBuffers - kLimit));
    for (size_t i = 1; i < kBuffers; ++i) {
        CHECK((scene.find(i) == nullptr) == (i <= kBuffers - kLimit));  // the oldest are gone
    }
    // Names without mappings do not add up either.
    BufferKey name = scene.exports[0].name;
    for (uint64_t i = 0; i < 20000; ++i) {
        name.buffer_id = 1000000 + i;
        CHECK(!scene.mappings.missed(name, scene.context(), 1e-9, false));
    }
    return 0;
});

TEST(IpcMappingCacheTest, LeastRecentlyUsedAreClosed) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    EXPECT_EQ(bounded.run(), 0);
}

FreshProcess opened_late("mapping-opened-late", [] {
    constexpr size_t kLimit = 128;
    Scene scene;
    CHECK(scene.start(kLimit + 4));
    CHECK(scene.ask(0));
    for (size_t i = 1; i <= kLimit; ++i) {
        CHECK(scene.ask(i));
        scene.answer(i);
    }
    scene.answer(0);
    CHECK(scene.find(1) == nullptr);
    const std::shared_ptr<PeerMapping> mapping = scene.find(0);
    CHECK(mapping != nullptr && scene.holds(0, *mapping));
    // Nothing is closed for what is mapped on trust.
    mapping->note_use(1, false);
    CHECK(!scene.ask(kLimit + 1, 1e-9, true));
    CHECK(scene.ask(kLimit + 2, 1));
    scene.mappings.forget_buffer(scene.exports[2].name.owner, scene.exports[2].name.buffer_id);
    CHECK(scene.ask(kLimit + 3, 1e-9, true));
    return 0;
});

TEST(IpcMappingCacheTest, WhatIsOpenedIsTheYoungest) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    EXPECT_EQ(opened_late.run(), 0);
}

FreshProcess refusing("mapping-refused-by-all", [] {
    Scene scene;
    CHECK(scene.start(6));
    CHECK(scene.mappings.belongs_to(scene.exports[0].name.owner, 1));
    for (size_t i = 0; i < 3; ++i) {
        CHECK(scene.ask(i, 1e-9, true));
        scene.mappings.receive(scene.exports[i].name.owner, scene.exports[i].name.buffer_id,
                               nullptr);
    }
    CHECK(!scene.ask(3, 1e-9, true));
    CHECK(scene.ask(4, 1));  // where it pays
    scene.answer(4);
    CHECK(scene.find(4) != nullptr);
    CHECK(scene.ask(5, 1e-9, true));
    return 0;
});

TEST(IpcMappingCacheTest, AnOwnerThatLetsNothingBeMappedIsNotAskedOnTrust) {
    EXPECT_EQ(refusing.run(), 0);
}

/** Each context needs a mapping of its own. */
FreshProcess contexts("mapping-contexts", [] {
    Scene scene;
    CHECK(scene.start(1));
    CUcontext other = nullptr;
    if (devices() < 2) {
        return kSkipped;
    }
    CHECK(CudaDriver::get()->device_primary_ctx_retain(&other, 1) == CUDA_SUCCESS);
    CHECK(scene.ask(0));
    CHECK(scene.mappings.missed(scene.exports[0].name, other, 1, false));
    CHECK(scene.find(0) == nullptr);
    CUcontext before = current_context();
    scene.answer(0);
    CHECK(current_context() == before);
    CHECK(scene.find(0) != nullptr && scene.holds(0, *scene.find(0)));
    const auto second = scene.mappings.find(scene.exports[0].name, other);
    CHECK(second != nullptr || calls("cuIpcOpenMemHandle") == 2);
    CHECK(second != scene.find(0));
    return 0;
});

TEST(IpcMappingCacheTest, EachContextHasItsOwn) {
    const int status = contexts.run();
    if (status == kSkipped) {
        GTEST_SKIP() << "needs two GPUs";
    }
    EXPECT_EQ(status, 0);
}

// ---------------------------------------------------------------- the owner's side

class MemoryExport : public GpuTest {};

TEST_F(MemoryExport, GivesHandlesOnlyOfWhatIsThere) {
    Buffer managed(MemoryKind::managed, kBytes);
    Buffer pinned(MemoryKind::pinned, kBytes);
    Buffer host(MemoryKind::host, kBytes);
    for (const Buffer *buffer : {&managed, &pinned, &host}) {
        const BufferKey name = make_buffer_key(query_memory(buffer->data()));
        EXPECT_FALSE(name.can_be_mapped());
        EXPECT_FALSE(export_memory(name));
    }
    BufferKey name;
    {
        Buffer device(MemoryKind::device, kBytes);
        name = make_buffer_key(query_memory(device.data() + 100));
        EXPECT_EQ(name.owner, process_cookie().low);
        EXPECT_EQ(name.base, reinterpret_cast<uint64_t>(device.data()));
        EXPECT_TRUE(export_memory(name));
        EXPECT_TRUE(still_allocated(name));
        // What a peer may say instead.
        for (int lie = 0; lie < 6; ++lie) {
            BufferKey other = name;
            uint64_t *words[] = {&other.owner, &other.buffer_id, &other.base, &other.length};
            if (lie < 4) {
                *words[lie] += 1;
            } else {
                (lie == 4 ? other.base : other.buffer_id) = 0;
            }
            EXPECT_FALSE(export_memory(other)) << lie;
        }
        // Its word on how it is shared does not count.
        BufferKey other = name;
        other.sharing = BufferKey::Sharing::file_descriptor;
        const std::optional<MappingHandle> handle = export_memory(other);
        ASSERT_TRUE(handle);
        EXPECT_EQ(handle->sharing, BufferKey::Sharing::ipc_handle);
    }
    EXPECT_FALSE(still_allocated(name));
    EXPECT_FALSE(export_memory(name));
    Buffer again(MemoryKind::device, kBytes);
    EXPECT_FALSE(still_allocated(name)) << "another one at the same address";
    EXPECT_FALSE(export_memory(name));
}

TEST_F(MemoryExport, NamesTellDevicesApart) {
    int count = 0;
    cuda_.device_get_count(&count);
    EXPECT_NE(device_identity(0), 0u);
    EXPECT_EQ(device_identity(0), device_identity(0));
    EXPECT_EQ(device_identity(-1), 0u);
    EXPECT_EQ(device_identity(1 << 20), 0u);
    for (CUdevice device = 1; device < count; ++device) {
        EXPECT_NE(device_identity(device), device_identity(0));
    }
}

TEST_F(MemoryExport, ThreadWithoutAContextExports) {
    Buffer device(MemoryKind::device, kBytes);
    const BufferKey name = make_buffer_key(query_memory(device.data()));
    std::thread([&] {
        EXPECT_TRUE(export_memory(name));
        EXPECT_EQ(current_context(), nullptr);
    }).join();
}

}  // namespace
}  // namespace gpushm
