// SPDX-License-Identifier: BSD-3-Clause
// The standby kernel beside work of the application: kernels that fill the GPU, calls of the driver
// that wait for it, forks.
#include "kernels.hpp"
#include "standby_support.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>

namespace gpushm::ucp_test {

void standby_full_gpu(Peer &peer) {
    use_own_device(peer);
    Kernels kernels;
    if (!kernels.can_wait()) {
        skip("this driver runs no kernel that waits");
    }
    const Allocator word =
        peer.options.text("word", "device") == "pinned" ? Allocator::pinned : Allocator::device;
    const size_t warm = peer.options.number("warm", 0);
    constexpr size_t kMaxBytes = 64 * kKiB;
    constexpr size_t kRounds = 12;
    Allocation own(Allocator::device, kMaxBytes);
    Allocation inbox(word, kMaxBytes);
    CUstream stream = nullptr;
    require(cuda().cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    const Bytes nothing(kMaxBytes, 0);
    const auto size_in = [](size_t round) {
        return round % 4 == 3 ? kMaxBytes : round % 4 == 2 ? 4 * kKiB : size_t{8};
    };
    const auto content = [&](size_t round, int role) {
        Bytes bytes = pattern(size_in(round), 2 * round + static_cast<size_t>(role));
        bytes.back() = 1;  // what the kernel waits for
        return bytes;
    };
    const auto prepare = [&](size_t round) {
        set_activity(std::string("all of the GPU waits for ") + to_string(word) +
                     " memory, after " + std::to_string(warm) + " messages, round " +
                     std::to_string(round));
        own.write(0, content(round, peer.role).data(), size_in(round));
        inbox.write(0, nothing.data(), size_in(round));
    };
    const auto fill = [&](size_t round) {
        kernels.fill_gpu(stream, inbox.data() + size_in(round) - 4);
    };

    std::unique_ptr<Watchdog> watchdog;
    const auto watch = [&watchdog] {
        watchdog =
            std::make_unique<Watchdog>("a message, while kernels of the application fill the GPU");
    };
    const bool early = peer.options.has("early");
    if (early) {
        prepare(0);
        watch();
        fill(0);
    }
    Talk talk(peer);
    talk.barrier();
    for (size_t i = 0; i < warm; ++i) {
        const int sender = static_cast<int>(i % 2);
        talk.message(sender, peer.role == sender ? own.data() : inbox.data(), 8);
    }
    for (size_t round = 0; round < kRounds; ++round) {
        const size_t size = size_in(round);
        if (round != 0 || !early) {
            prepare(round);
            talk.barrier();
            watch();
            fill(round);
        }
        // The kernel of ours is there or not when the other one starts, and both may start at once.
        if (round % 3 == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        const double until = now_seconds() + (round % 3 == 2 ? 12e-3 : 0);
        while (now_seconds() < until) {
            talk.progress();
        }
        talk.barrier();
        if (cuda().cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY) {
            fail("the kernel of the application does not wait");
        }
        ucs_status_ptr_t requests[] = {
            talk.start(0, peer.role == 0 ? own.data() : inbox.data(), size),
            talk.start(1, peer.role == 1 ? own.data() : inbox.data(), size)};
        for (ucs_status_ptr_t request : requests) {
            require(talk.wait(request), "send or receive");
        }
        require(cuda().cuStreamSynchronize_(stream), "cuStreamSynchronize");
        watchdog.reset();
        Bytes got(size);
        inbox.read(0, got.data(), size);
        if (got != content(round, 1 - peer.role)) {
            fail("wrong data");
        }
        talk.barrier();
    }
    require(cuda().cuStreamDestroy_(stream), "cuStreamDestroy");
}

namespace {

struct DriverCall {
    const char *name;
    std::function<void()> call;
};

/** What an application does that waits for the GPU, or needs some of it. */
std::vector<DriverCall> driver_calls(Kernels &kernels, const Allocation &device_memory) {
    std::vector<DriverCall> calls = {
        {"cuCtxSynchronize", [] { require(cuda().cuCtxSynchronize_(), "cuCtxSynchronize"); }},
        {"cuMemAlloc, cuMemFree", [] { Allocation(Allocator::device, 4096); }},
        {"cuMemHostAlloc, cuMemFreeHost", [] { Allocation(Allocator::pinned, 4096); }},
        {"cuMemHostRegister, cuMemHostUnregister", [] { Allocation(Allocator::registered, 4096); }},
        {"cuStreamSynchronize of the default stream",
         [] { require(cuda().cuStreamSynchronize_(nullptr), "cuStreamSynchronize"); }},
        {"cuMemcpy",
         [&device_memory] {
             uint32_t word;
             require(cuda().cuMemcpy_(device_address(&word), device_address(device_memory.data()),
                                      sizeof(word)),
                     "cuMemcpy");
         }},
        {"a kernel on a new stream",
         [&kernels, &device_memory] { kernels.checksum(device_memory.data(), 64); }}};
    if (cuda().cuModuleLoadData_ != nullptr) {
        calls.push_back({"cuModuleLoadData", [] { Kernels(); }});
    }
    return calls;
}

}  // namespace

/** One thread of the receiver waits for the message, and with that keeps the kernel on the GPU; the
 * other calls the driver, and the message is sent when that has returned. */
void standby_other_thread(Peer &peer) {
    use_own_device(peer);
    Talk talk(peer);
    Kernels kernels;
    Allocation memory(Allocator::device, 4096);
    Allocation read_by_thread(Allocator::device, 4096);
    Stopwatch stopwatch;
    const std::vector<DriverCall> calls = driver_calls(kernels, read_by_thread);
    const size_t rounds = peer.options.number("rounds", 2);
    CUcontext context = nullptr;
    require(cuda().cuCtxGetCurrent_(&context), "cuCtxGetCurrent");
    for (size_t round = 0; round < 2 * rounds; ++round) {
        const int sender = static_cast<int>(round % 2);
        for (const DriverCall &call : calls) {
            set_activity(std::string("a message after ") + call.name + " of another thread");
            talk.ping_pong(memory.data(), 8);
            if (peer.role == sender) {
                peer.channel.receive(talk.progress_function());
                talk.message(sender, memory.data(), 64);
            } else {
                ucs_status_ptr_t request = talk.start(sender, memory.data(), 64);
                std::atomic<bool> ended{false};
                std::thread thread([&] {
                    require(cuda().cuCtxSetCurrent_(context), "cuCtxSetCurrent");
                    stopwatch.time(call.name, call.call);
                    ended = true;
                });
                while (!ended) {
                    talk.progress();
                }
                thread.join();
                peer.channel.send("go on");
                require(talk.wait(request), "receive");
            }
        }
    }
    stopwatch.print(peer.role);
    talk.barrier();
}

/** The same calls of the thread itself, and its buffers freed and allocated again, right after the
 * end of a send or a receive. */
void standby_driver_calls(Peer &peer) {
    use_own_device(peer);
    Talk talk(peer);
    Kernels kernels;
    Stopwatch stopwatch;
    Allocation lasting(Allocator::device, 4096);
    const std::vector<DriverCall> calls = driver_calls(kernels, lasting);
    const size_t rounds = peer.options.number("rounds", 100);
    std::unique_ptr<Allocation> own;
    std::unique_ptr<Allocation> inbox;
    for (size_t round = 0; round < rounds; ++round) {
        const size_t size = round % 3 == 0 ? 8 : round % 3 == 1 ? 100 : 4 * kKiB;
        set_activity("calls of the driver right after a message, round " + std::to_string(round));
        const auto content = [&](int role) {
            return pattern(size, 2 * round + static_cast<size_t>(role));
        };
        if (!own || round % 4 < 2) {  // most often where the old one was
            own.reset();
            own = std::make_unique<Allocation>(Allocator::device, 4 * kKiB);
        }
        if (!inbox || round % 5 < 3) {
            inbox.reset();
            inbox = std::make_unique<Allocation>(Allocator::device, 4 * kKiB);
        }
        own->write(0, content(peer.role).data(), size);
        inbox->write(0, content(peer.role).data(), size);
        talk.ping_pong(lasting.data(), 8, 4);
        ucs_status_ptr_t receive = nullptr;
        for (int sender : {0, 1}) {
            ucs_status_ptr_t request =
                talk.start(sender, peer.role == sender ? own->data() : inbox->data(), size);
            if (peer.role != sender) {
                receive = request;
                continue;
            }
            require(talk.wait(request), "send");
            if (round % 2 == 0) {
                stopwatch.time("cuMemFree of what was sent", [&] { own.reset(); });
            }
        }
        require(talk.wait(receive), "receive");
        const DriverCall &call = calls[round % calls.size()];
        stopwatch.time(call.name, call.call);
        Bytes got(size);
        inbox->read(0, got.data(), size);
        if (got != content(1 - peer.role)) {
            fail("wrong data after %s", call.name);
        }
    }
    stopwatch.print(peer.role);
    talk.barrier();
}

/** Children that end at once, and that live on, while messages are under way. */
void standby_fork(Peer &peer) {
    use_own_device(peer);
    Talk talk(peer);
    Allocation own(Allocator::device, 4096);
    Allocation inbox(Allocator::device, 4096);
    int ends[2];
    if (pipe(ends) != 0) {
        fail("pipe");
    }
    std::vector<pid_t> children;
    for (size_t round = 0; round < peer.options.number("rounds", 10); ++round) {
        set_activity("fork, round " + std::to_string(round));
        const Bytes content = pattern(4096, round);
        own.write(0, content.data(), content.size());
        talk.ping_pong(inbox.data(), 8);
        ucs_status_ptr_t requests[] = {
            talk.start(0, peer.role == 0 ? own.data() : inbox.data(), 4096),
            talk.start(1, peer.role == 1 ? own.data() : inbox.data(), 4096)};
        children.push_back(fork());
        if (children.back() == 0) {
            char byte;
            close(ends[1]);
            _exit(round % 2 == 0 || read(ends[0], &byte, 1) == 0 ? 0 : 1);
        }
        for (ucs_status_ptr_t request : requests) {
            require(talk.wait(request), "send or receive");
        }
        talk.ping_pong(own.data() + 4088, 8, 4);
        Bytes got(4096);
        inbox.read(0, got.data(), got.size());
        if (got != content) {
            fail("wrong data after a fork");
        }
        talk.barrier();
    }
    close(ends[1]);
    for (pid_t child : children) {
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fail("a child ended with status %d", status);
        }
    }
    talk.barrier();
}

}  // namespace gpushm::ucp_test
