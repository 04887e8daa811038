// SPDX-License-Identifier: BSD-3-Clause
// What an application does on the GPU beside messages: kernels that read what arrived, that wait
// for it, and streams that are being captured.
#include "../mpi/pattern.hpp"
#include "check.hpp"
#include "kernels.hpp"
#include "messenger.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;

void use_own_device(const Peer &peer) {
    use_device(peer.options.has("same-device") ? 0 : peer.role % device_count());
}

ucs_status_ptr_t start(Session &session, bool sending, void *memory, size_t size, uint64_t tag) {
    const ucp_request_param_t parameters = plain_request();
    return sending ? ucp_tag_send_nbx(session.ep(), memory, size, tag, &parameters)
                   : ucp_tag_recv_nbx(session.worker().get(), memory, size, tag, ~ucp_tag_t{0},
                                      &parameters);
}

/** What the messages of a series contain, made before, in turn. */
class Contents {
public:
    explicit Contents(size_t bytes)
        : bytes_(bytes), all_(kCount, std::vector<unsigned char>(bytes)) {
        for (size_t i = 0; i < kCount; ++i) {
            mpi_test::fill_pattern(all_[i].data(), bytes, 77 + i);
            sums_.push_back(checksum_of(all_[i].data(), bytes));
        }
    }
    const unsigned char *data(uint64_t n) const { return all_[n % kCount].data(); }
    uint32_t sum(uint64_t n) const { return sums_[n % kCount]; }
    size_t bytes() const { return bytes_; }

private:
    static constexpr size_t kCount = 7;  // not a multiple of what rings and slots hold
    size_t bytes_;
    std::vector<std::vector<unsigned char>> all_;
    std::vector<uint32_t> sums_;
};

}  // namespace

/** Right after a receive ends, a new stream reads the memory; the sender overwrites its own as soon
 * as the send ends. `--count` messages. */
void visibility(Peer &peer) {
    use_own_device(peer);
    Session session(peer.channel, UCP_FEATURE_TAG);
    const Progress progress = session.worker().progress_function();
    Kernels kernels;
    const std::vector<size_t> sizes = {8, 1000, 8 * kKiB, 64 * kKiB, kMiB};
    const size_t count = peer.options.number("count", 400);
    uint64_t n = 0;
    for (Allocator from : {Allocator::host, Allocator::device}) {
        for (size_t size : sizes) {
            set_activity(std::string(to_string(from)) + " -> device, " + std::to_string(size) +
                         " bytes, read at once");
            const Contents contents(size);
            Allocation memory(peer.role == 0 ? from : Allocator::device, size);
            const size_t messages = size == kMiB ? count / 20 + 1 : count / 8 + 1;
            peer.channel.barrier(progress);
            for (size_t i = 0; i < messages; ++i) {
                ++n;
                if (peer.role == 0) {
                    // The write overwrites what the message before took along.
                    memory.write(0, contents.data(n), size);
                    require(session.worker().wait(start(session, true, memory.data(), size, n)),
                            "send");
                    continue;
                }
                require(session.worker().wait(start(session, false, memory.data(), size, n)),
                        "receive");
                const uint32_t sum = kernels.checksum(memory.data(), size);
                if (sum != contents.sum(n)) {
                    fail("message %llu: a stream of the application does not see what arrived",
                         static_cast<unsigned long long>(n));
                }
            }
            peer.channel.barrier(progress);
        }
    }
    if (peer.role == 1) {
        printf("visibility: %llu messages read at once by %s\n", static_cast<unsigned long long>(n),
               kernels.available() ? "kernels" : "copies on new streams");
    }
}

/** Work of the application occupies its stream until the message has arrived. */
void waiting_kernel(Peer &peer) {
    use_own_device(peer);
    Session session(peer.channel, UCP_FEATURE_TAG);
    const Progress progress = session.worker().progress_function();
    const CudaApi &api = cuda();
    Kernels kernels;
    void *memory = nullptr;
    require(api.cuMemHostAlloc_(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    auto *const flag = static_cast<volatile uint32_t *>(memory);
    CUstream blocking = nullptr;
    CUstream independent = nullptr;
    require(api.cuStreamCreate_(&blocking, CU_STREAM_DEFAULT), "cuStreamCreate");
    require(api.cuStreamCreate_(&independent, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    uint64_t n = 0;
    for (Allocator from : {Allocator::host, Allocator::device}) {
        for (Allocator to : {Allocator::host, Allocator::device}) {
            // Everything is warm, mapped and registered at the end of the first series: the driver
            // calls of a first use may wait for the device, those of a message must not.
            for (size_t size : {size_t{8}, 8 * kKiB + 1, 64 * kKiB, 4 * kMiB}) {
                GuardedAllocation buffer(peer.role == 0 ? from : to, size);
                for (int i = 0; i < 64; ++i) {
                    const bool occupied = i >= (size > kMiB ? 6 : 60);
                    const CUstream stream = i % 2 == 0 ? blocking : independent;
                    set_activity(std::string(to_string(from)) + " -> " + to_string(to) + ", " +
                                 std::to_string(size) + " bytes while the application waits on a " +
                                 (i % 2 == 0 ? "blocking" : "non-blocking") + " stream");
                    const Placement place = {size, 0, size, mpi_test::message_seed(++n, size)};
                    const bool sending = peer.role == 0;
                    sending ? buffer.prepare_source(place) : buffer.prepare_destination(place);
                    *flag = 0;
                    if (occupied && !kernels.wait_for_flag(stream, flag)) {
                        skip("this driver has no work that waits");
                    }
                    peer.channel.barrier(progress);
                    require(session.worker().wait(
                                start(session, sending, buffer.address(place), size, n)),
                            "send or receive");
                    *flag = 1;
                    require(api.cuStreamSynchronize_(stream), "cuStreamSynchronize");
                    if (!sending) {
                        buffer.check(place);
                    }
                    if (size > kMiB && i >= 10) {
                        break;
                    }
                    peer.channel.barrier(progress);
                }
            }
        }
    }
    peer.channel.barrier(progress);
    require(api.cuStreamDestroy_(blocking), "cuStreamDestroy");
    require(api.cuStreamDestroy_(independent), "cuStreamDestroy");
    require(api.cuMemFreeHost_(memory), "cuMemFreeHost");
}

namespace {

/** Captures in each mode; in global mode any call of any thread that could disturb it makes it
 * invalid. */
void capture_while_messages_go(Peer &peer, Session &session, GuardedAllocation &memory) {
    const CudaApi &api = cuda();
    const Progress progress = session.worker().progress_function();
    Allocation captured(Allocator::device, 4096);
    Allocation pinned(Allocator::pinned, 4096);
    CUstream stream = nullptr;
    require(api.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                              CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                              CU_STREAM_CAPTURE_MODE_RELAXED};
    static uint64_t n = 0;
    for (size_t size : {size_t{8}, size_t{8193}, 64 * kKiB, 4 * kMiB}) {
        for (int i = 0; i < (size > kMiB ? 8 : 64); ++i) {
            const CUstreamCaptureMode mode = kModes[i % 4 == 3 ? 0 : i % 4];
            const Placement place = {size, 0, size, mpi_test::message_seed(++n, size)};
            const bool sending = static_cast<int>(n % 2) == peer.role;
            sending ? memory.prepare_source(place) : memory.prepare_destination(place);
            peer.channel.barrier(progress);
            require(api.cuStreamBeginCapture_(stream, mode), "cuStreamBeginCapture");
            require(api.cuMemcpyAsync_(device_address(captured.data()),
                                       device_address(pinned.data()), 4096, stream),
                    "cuMemcpyAsync");
            require(session.worker().wait(start(session, sending, memory.address(place), size, n)),
                    "send or receive");
            for (int poll = 0; poll < 100; ++poll) {
                progress();
            }
            CUgraph graph = nullptr;
            const CUresult result = api.cuStreamEndCapture_(stream, &graph);
            if (result != CUDA_SUCCESS || graph == nullptr) {
                fail("the capture in mode %d was disturbed (error %d)", static_cast<int>(mode),
                     static_cast<int>(result));
            }
            if (api.cuGraphGetNodes_ != nullptr) {
                size_t nodes = 0;
                require(api.cuGraphGetNodes_(graph, nullptr, &nodes), "cuGraphGetNodes");
                if (nodes != 1) {
                    fail("%zu operations were captured instead of 1", nodes);
                }
            }
            if (api.cuGraphDestroy_ != nullptr) {
                require(api.cuGraphDestroy_(graph), "cuGraphDestroy");
            }
            peer.channel.barrier(progress);
            if (!sending) {
                memory.check(place);
            }
        }
    }
    require(api.cuStreamDestroy_(stream), "cuStreamDestroy");
}

/** Another thread holds a capture open, and begins and ends captures, all the time. */
class CapturingThread {
public:
    explicit CapturingThread(int device) : thread_([this, device] { run(device); }) {
        while (!started_) {
            std::this_thread::yield();
        }
    }
    ~CapturingThread() {
        ended_ = true;
        thread_.join();
    }
    CapturingThread(const CapturingThread &) = delete;
    CapturingThread &operator=(const CapturingThread &) = delete;
    /** Captures that were made undisturbed up to now. */
    size_t count() const { return count_; }

private:
    void run(int device) {
        const CudaApi &api = cuda();
        require(api.cuCtxSetCurrent_(primary_context(device)), "cuCtxSetCurrent");
        CUstream stream = nullptr;
        require(api.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        while (!ended_) {
            require(api.cuStreamBeginCapture_(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                    "cuStreamBeginCapture");
            started_ = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
            CUgraph graph = nullptr;
            const CUresult result = api.cuStreamEndCapture_(stream, &graph);
            if (result != CUDA_SUCCESS) {
                fail("a capture of another thread was disturbed (error %d)",
                     static_cast<int>(result));
            }
            if (graph != nullptr && api.cuGraphDestroy_ != nullptr) {
                require(api.cuGraphDestroy_(graph), "cuGraphDestroy");
            }
            ++count_;
        }
        require(api.cuStreamDestroy_(stream), "cuStreamDestroy");
    }

    std::atomic<bool> started_{false};
    std::atomic<bool> ended_{false};
    std::atomic<size_t> count_{0};
    std::thread thread_;
};

/** Every message at least once, until another thread of each process has made enough captures. */
void exchange_beside_captures(Peer &peer, Session &session,
                              const std::vector<std::unique_ptr<GuardedAllocation>> &buffers,
                              const std::vector<Placement> &places) {
    constexpr size_t kCaptures = 50;
    const Progress progress = session.worker().progress_function();
    CapturingThread other(peer.role % device_count());
    for (size_t i = 0;; ++i) {
        const size_t n = i % buffers.size();
        require(session.worker().wait(start(session, peer.role == 0, buffers[n]->address(places[n]),
                                            places[n].size, 5000 + i)),
                "send or receive");
        const bool enough = i + 1 >= buffers.size() && other.count() >= kCaptures;
        if (peer.channel.exchange(enough ? "enough" : "", progress) == "enough" && enough) {
            break;
        }
    }
}

}  // namespace

/** Captures go on undisturbed, and messages too, in this thread and beside another one. */
void captures(Peer &peer) {
    const CudaApi &api = cuda();
    if (api.cuStreamBeginCapture_ == nullptr || api.cuStreamEndCapture_ == nullptr) {
        skip("this driver cannot capture streams");
    }
    use_own_device(peer);
    Session session(peer.channel, UCP_FEATURE_TAG);
    const Progress progress = session.worker().progress_function();
    for (Allocator allocator : {Allocator::device, Allocator::host, Allocator::pinned}) {
        GuardedAllocation memory(allocator, 4 * kMiB);
        set_activity(std::string("capture beside messages of ") + to_string(allocator) + " memory");
        capture_while_messages_go(peer, session, memory);
    }
    set_activity("capture in another thread");
    // New sizes of the same memory only: the test itself may not allocate or copy meanwhile.
    constexpr size_t kMessages = 40;
    std::vector<std::unique_ptr<GuardedAllocation>> buffers;
    std::vector<Placement> places;
    for (size_t i = 0; i < kMessages; ++i) {
        const size_t size = i % 4 == 3 ? kMiB + i : (size_t{8} << (i % 4) * 5);
        buffers.push_back(std::make_unique<GuardedAllocation>(Allocator::device, size));
        places.push_back({size, 0, size, mpi_test::message_seed(1000 + i, size)});
        peer.role == 0 ? buffers[i]->prepare_source(places[i])
                       : buffers[i]->prepare_destination(places[i]);
    }
    peer.channel.barrier(progress);
    exchange_beside_captures(peer, session, buffers, places);
    for (size_t i = 0; peer.role == 1 && i < kMessages; ++i) {
        buffers[i]->check(places[i]);
    }
    peer.channel.barrier(progress);
}

}  // namespace gpushm::ucp_test
