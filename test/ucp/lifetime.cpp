// SPDX-License-Identifier: BSD-3-Clause
// Memory that goes away, or comes back as something else, while a transport may still know of it.
#include "../mpi/pattern.hpp"
#include "check.hpp"
#include "kernels.hpp"
#include "messenger.hpp"
#include "watchdog.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;

/** A session and what it takes to send checked messages. */
class Exchange {
public:
    explicit Exchange(Peer &peer)
        : peer_(peer), session_(peer.channel, kAllFeatures), messenger_(peer, session_) {}

    /** One tagged message from process `sender`; each process gives its own memory. */
    void message(int sender, GuardedAllocation &memory, size_t size) {
        const Placement place = prepare(sender, memory, size);
        transfer(sender, memory, place);
        check(sender, memory, place);
    }
    /** Its steps. Only the second one may be done beside a kernel that waits. */
    Placement prepare(int sender, GuardedAllocation &memory, size_t size) {
        const Placement place = {size, 0, size, mpi_test::message_seed(++n_, size)};
        peer_.role == sender ? memory.prepare_source(place) : memory.prepare_destination(place);
        return place;
    }
    void transfer(int sender, GuardedAllocation &memory, const Placement &place) {
        messenger_.transfer(Operation::tag, peer_.role == sender, memory, place);
    }
    void check(int sender, const GuardedAllocation &memory, const Placement &place) {
        if (peer_.role != sender) {
            memory.check(place);
        }
    }
    /** Enough messages for a mapping of the memory to pay. */
    void use_long_enough(int sender, GuardedAllocation &memory, size_t size) {
        for (int i = 0; i < (size >= kMiB ? 6 : 60); ++i) {
            message(sender, memory, size);
        }
    }
    void barrier() { messenger_.barrier(); }
    Session &session() { return session_; }

private:
    Peer &peer_;
    Session session_;
    Messenger messenger_;
    uint64_t n_ = 0;
};

size_t free_device_memory() {
    size_t free = 0;
    size_t total = 0;
    require(cuda().cuMemGetInfo_(&free, &total), "cuMemGetInfo");
    return free;
}

void use_own_device(const Peer &peer) {
    use_device(peer.role % device_count());
}

}  // namespace

/** In turn the source and the destination are new in each round, most often at an old address. */
void reallocated(Peer &peer) {
    use_own_device(peer);
    Exchange exchange(peer);
    const size_t rounds = peer.options.number("rounds", 20);
    for (Allocator allocator : allocators_of(peer.options)) {
        std::set<const void *> places;
        GuardedAllocation lasting(Allocator::device, 4 * kMiB);
        for (size_t round = 0; round < rounds; ++round) {
            const int changing = static_cast<int>(round % 2);
            const size_t size = round % 10 < 8 ? 64 * kKiB : 3 * kMiB;
            set_activity(std::string("new ") + to_string(allocator) + " memory in process " +
                         std::to_string(changing) + ", round " + std::to_string(round));
            std::unique_ptr<GuardedAllocation> fresh;
            if (peer.role == changing) {
                fresh = std::make_unique<GuardedAllocation>(allocator, size);
                places.insert(fresh->memory().data());
            }
            GuardedAllocation &memory = fresh ? *fresh : lasting;
            for (int i = 0; i < 3; ++i) {
                exchange.message(changing, memory, size);
                exchange.message(1 - changing, memory, size);
            }
        }
        if (peer.role == 0 && allocator == Allocator::device && places.size() > rounds / 2) {
            printf("reallocated: %s memory came at %zu places in %zu rounds\n",
                   to_string(allocator), places.size(), rounds / 2);
        }
        exchange.barrier();
    }
}

/** Memory that the other process may have mapped comes back when its owner frees it. */
void freed_while_mapped(Peer &peer) {
    use_own_device(peer);
    Exchange exchange(peer);
    const size_t bytes = peer.options.number("mib", 32) * kMiB;
    GuardedAllocation small(Allocator::device, 64 * kKiB);
    exchange.use_long_enough(0, small, 64 * kKiB);
    for (Allocator allocator : {Allocator::device, Allocator::vmm_shared}) {
        const std::vector<Allocator> usable = all_allocators();
        if (std::find(usable.begin(), usable.end(), allocator) == usable.end()) {
            continue;
        }
        set_activity(std::string("freeing mapped ") + to_string(allocator) + " memory");
        size_t before = 0;
        {
            GuardedAllocation own(Allocator::device, bytes);  // of the receiver
            exchange.barrier();  // the other process may have allocated on the same device
            before = free_device_memory();
            exchange.barrier();
            if (peer.role == 0) {
                GuardedAllocation large(allocator, bytes);
                exchange.use_long_enough(0, large, bytes);
            } else {
                exchange.use_long_enough(0, own, bytes);
            }
            // The memory must be there again after a little traffic.
            const double deadline = now_seconds() + 5;
            bool back = false;
            while (!back) {
                exchange.message(0, small, 8);
                back = peer.role == 1 || free_device_memory() + bytes / 2 >= before;
                if (now_seconds() > deadline) {
                    fail("%zu MiB are still missing 5 s after they were freed",
                         (before - free_device_memory()) / kMiB);
                }
                const std::string all = peer.channel.exchange(
                    back ? "back" : "", exchange.session().worker().progress_function());
                back = back && all == "back";
            }
        }
        exchange.barrier();
    }
}

namespace {

/** Messages both ways, whose buffers are prepared and checked apart from them. */
class Batch {
public:
    Batch(Peer &peer, Exchange &exchange) : exchange_(exchange) {
        for (int sender : {0, 1}) {
            for (size_t size : {size_t{8}, 64 * kKiB, 4 * kMiB}) {
                add(sender, Allocator::device, size);
                add(sender, sender == peer.role ? Allocator::device : Allocator::host, size);
            }
        }
    }
    void prepare() {
        for (One &one : all_) {
            one.place = exchange_.prepare(one.sender, *one.memory, one.size);
        }
    }
    void transfer() {
        for (const One &one : all_) {
            exchange_.transfer(one.sender, *one.memory, one.place);
        }
    }
    void check() {
        for (const One &one : all_) {
            exchange_.check(one.sender, *one.memory, one.place);
        }
    }

private:
    struct One {
        int sender;
        size_t size;
        std::unique_ptr<GuardedAllocation> memory;
        Placement place;
    };
    void add(int sender, Allocator allocator, size_t size) {
        all_.push_back({sender, size, std::make_unique<GuardedAllocation>(allocator, size), {}});
    }

    Exchange &exchange_;
    std::vector<One> all_;
};

}  // namespace

/** Memory that is mapped in the other process is freed while a kernel waits there: it is closed
 * once the kernel has ended, and messages go on meanwhile. */
void freed_beside_kernel(Peer &peer) {
    use_own_device(peer);
    Exchange exchange(peer);
    Kernels kernels;
    const CudaApi &api = cuda();
    constexpr size_t kBytes = 32 * kMiB;
    void *memory = nullptr;
    require(api.cuMemHostAlloc_(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    auto *const flag = static_cast<volatile uint32_t *>(memory);
    CUstream stream = nullptr;
    require(api.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    GuardedAllocation lasting(Allocator::device, kBytes);
    Batch batch(peer, exchange);
    const Progress progress = exchange.session().worker().progress_function();
    for (int i = 0; i < 20; ++i) {  // what is done once is done
        batch.prepare();
        batch.transfer();
    }
    for (int round = 0; round < 4; ++round) {
        const int owner = round % 2;
        set_activity("messages beside a kernel, after process " + std::to_string(owner) +
                     " freed what was mapped");
        exchange.barrier();
        const size_t before = free_device_memory();
        exchange.barrier();
        {
            std::unique_ptr<GuardedAllocation> mapped;
            if (peer.role == owner) {
                mapped = std::make_unique<GuardedAllocation>(Allocator::device, kBytes);
            }
            exchange.use_long_enough(owner, mapped ? *mapped : lasting, kBytes);
            batch.prepare();
            *flag = 0;
            if (peer.role != owner && !kernels.wait_for_flag(stream, flag)) {
                skip("this driver has no work that waits");
            }
            exchange.barrier();
        }
        {
            const Watchdog watchdog("a message beside a kernel, while memory is unmapped");
            const double until = now_seconds() + 0.3;  // unmapping begins, if it does
            while (now_seconds() < until) {
                progress();
            }
            batch.transfer();
        }
        *flag = 1;
        require(api.cuStreamSynchronize_(stream), "cuStreamSynchronize");
        batch.check();
        const double deadline = now_seconds() + 5;
        while (peer.role == owner && free_device_memory() + kBytes / 2 < before) {
            progress();
            if (now_seconds() > deadline) {
                fail("memory is still missing 5 s after it was freed and the kernel ended");
            }
        }
        peer.channel.barrier(progress);
    }
    require(api.cuStreamDestroy_(stream), "cuStreamDestroy");
    require(api.cuMemFreeHost_(memory), "cuMemFreeHost");
}

/** The application opens and closes by itself what the transport may have opened too. */
void own_ipc_handle(Peer &peer) {
    use_own_device(peer);
    Exchange exchange(peer);
    constexpr size_t kBytes = 2 * kMiB;
    GuardedAllocation memory(Allocator::device, kBytes);
    const Progress progress = exchange.session().worker().progress_function();
    CUipcMemHandle handle = {};
    require(cuda().cuIpcGetMemHandle_(&handle, device_address(memory.memory().data())),
            "cuIpcGetMemHandle");
    const std::string theirs = peer.channel.exchange(
        std::string(reinterpret_cast<const char *>(&handle), sizeof(handle)), progress);
    CUipcMemHandle other = {};
    theirs.copy(reinterpret_cast<char *>(&other), sizeof(other));

    const auto open = [&] {
        CUdeviceptr address = 0;
        const CUresult result =
            cuda().cuIpcOpenMemHandle_(&address, other, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        // One mapping a process and context (CUDA driver API, cuIpcOpenMemHandle).
        if (result == CUDA_ERROR_ALREADY_MAPPED) {
            return CUdeviceptr{0};
        }
        require(result, "cuIpcOpenMemHandle");
        return address;
    };
    const auto check_mapping = [&](CUdeviceptr address) {
        if (address == 0) {
            return;
        }
        // The other process wrote its number into its guard bytes.
        unsigned char byte = 0;
        require(cuda().cuMemcpy_(device_address(&byte), address + 1, 1), "cuMemcpy");
        if (byte != 0x50 + 1 - peer.role) {
            fail("the application's own mapping shows 0x%02x", byte);
        }
    };
    const auto mark = [&] {
        const unsigned char byte = static_cast<unsigned char>(0x50 + peer.role);
        memory.memory().write(1, &byte, 1);
        exchange.barrier();
    };
    set_activity("handle opened by the application first");
    CUdeviceptr mapping = open();
    exchange.use_long_enough(0, memory, kBytes);
    exchange.use_long_enough(1, memory, kBytes);
    mark();
    check_mapping(mapping);
    set_activity("handle closed by the application");
    exchange.barrier();
    if (mapping != 0) {
        require(cuda().cuIpcCloseMemHandle_(mapping), "cuIpcCloseMemHandle");
    }
    exchange.use_long_enough(0, memory, kBytes);
    exchange.use_long_enough(1, memory, kBytes);
    set_activity("handle opened by the application afterwards");
    mapping = open();
    exchange.use_long_enough(0, memory, kBytes);
    mark();
    check_mapping(mapping);
    exchange.barrier();
    if (mapping != 0) {
        require(cuda().cuIpcCloseMemHandle_(mapping), "cuIpcCloseMemHandle");
    }
    exchange.use_long_enough(1, memory, kBytes);
    exchange.barrier();
}

/** cudaDeviceReset before UCX is closed, and life after it. */
void context_reset(Peer &peer) {
    const int device = peer.role % device_count();
    for (int round = 0; round < 3; ++round) {
        set_activity("reset of the device, round " + std::to_string(round));
        use_own_device(peer);
        Exchange exchange(peer);
        for (Allocator allocator : {Allocator::device, Allocator::managed_cpu}) {
            GuardedAllocation memory(allocator, 2 * kMiB);
            exchange.use_long_enough(round % 2, memory, 2 * kMiB);
            exchange.use_long_enough(round % 2, memory, 64 * kKiB);
        }
        exchange.barrier();
        reset_device(device);
        exchange.barrier();
        if (round == 2) {
            set_activity("messages after a reset of the device");
            use_own_device(peer);
            GuardedAllocation memory(Allocator::device, 2 * kMiB);
            exchange.use_long_enough(0, memory, 8);
            exchange.use_long_enough(0, memory, 64 * kKiB);
            exchange.use_long_enough(1, memory, 2 * kMiB);
            exchange.barrier();
        }
    }
}

/** A child of fork that does nothing of CUDA or UCX, while messages go on. */
void fork_in_the_middle(Peer &peer) {
    use_own_device(peer);
    Exchange exchange(peer);
    for (Allocator allocator : {Allocator::host, Allocator::registered, Allocator::device}) {
        set_activity(std::string("fork, ") + to_string(allocator) + " memory");
        const auto memory = std::make_unique<GuardedAllocation>(allocator, 2 * kMiB);
        GuardedAllocation large(allocator, 16 * kMiB);
        exchange.use_long_enough(0, *memory, 2 * kMiB);
        exchange.use_long_enough(1, *memory, 2 * kMiB);
        int ends[2];
        if (pipe(ends) != 0) {
            fail("pipe");
        }
        const pid_t quick = fork();
        if (quick == 0) {
            _exit(0);
        }
        const pid_t lasting = fork();
        if (lasting == 0) {
            // It frees and uses ordinary memory, and lives on beside its parent.
            close(ends[1]);
            if (allocator == Allocator::host) {
                std::memset(memory->memory().data(), 0xcc, 2 * kMiB);
            }
            for (int i = 0; i < 100; ++i) {
                std::vector<char> bytes(1000 * static_cast<size_t>(i), 'x');
            }
            char byte;
            _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
        }
        close(ends[0]);
        for (int i = 0; i < 3; ++i) {
            exchange.message(i % 2, *memory, 2 * kMiB);
            exchange.message(i % 2, large, 16 * kMiB);
            exchange.use_long_enough(i % 2, *memory, 8);
        }
        close(ends[1]);
        for (pid_t child : {quick, lasting}) {
            int status = 0;
            if (waitpid(child, &status, 0) != child || status != 0) {
                fail("a child ended with status %d", status);
            }
        }
        exchange.message(0, large, 16 * kMiB);
    }
    exchange.barrier();
}

/** Whatever context is current when a message is started and when it is progressed. */
void other_contexts(Peer &peer) {
    use_own_device(peer);
    Exchange exchange(peer);
    const int own = peer.role % device_count();
    struct Current {
        const char *name;
        CUcontext context;
    };
    std::vector<Current> all = {{"no context", nullptr}, {"its own context", primary_context(own)}};
    if (device_count() > 1) {
        all.push_back({"a context of another device", primary_context((own + 1) % device_count())});
    }
    std::vector<std::unique_ptr<GuardedAllocation>> buffers;
    for (Allocator allocator : {Allocator::device, Allocator::host, Allocator::managed_cpu,
                                Allocator::pinned, Allocator::pool}) {
        const std::vector<Allocator> usable = all_allocators();
        if (std::find(usable.begin(), usable.end(), allocator) != usable.end()) {
            buffers.push_back(std::make_unique<GuardedAllocation>(allocator, 2 * kMiB));
        }
    }
    uint64_t n = 0;
    for (const Current &at_post : all) {
        for (const Current &at_progress : all) {
            for (const auto &buffer : buffers) {
                for (size_t size : {size_t{8}, 64 * kKiB, 2 * kMiB}) {
                    set_activity(std::string(to_string(buffer->memory().allocator())) +
                                 " memory, started with " + at_post.name + ", progressed with " +
                                 at_progress.name);
                    const bool sending = peer.role == static_cast<int>(++n % 2);
                    const Placement place = {size, 0, size, mpi_test::message_seed(n, size)};
                    use_device(own);
                    sending ? buffer->prepare_source(place) : buffer->prepare_destination(place);
                    exchange.barrier();
                    Session &session = exchange.session();
                    const ucp_request_param_t parameters = plain_request();
                    require(cuda().cuCtxSetCurrent_(at_post.context), "cuCtxSetCurrent");
                    ucs_status_ptr_t request =
                        sending ? ucp_tag_send_nbx(session.ep(), buffer->address(place), size, n,
                                                   &parameters)
                                : ucp_tag_recv_nbx(session.worker().get(), buffer->address(place),
                                                   size, n, ~ucp_tag_t{0}, &parameters);
                    CUcontext now = nullptr;
                    require(cuda().cuCtxGetCurrent_(&now), "cuCtxGetCurrent");
                    if (now != at_post.context) {
                        fail("another context is current afterwards");
                    }
                    require(cuda().cuCtxSetCurrent_(at_progress.context), "cuCtxSetCurrent");
                    require(session.worker().wait(request), "send or receive");
                    exchange.barrier();
                    require(cuda().cuCtxGetCurrent_(&now), "cuCtxGetCurrent");
                    if (now != at_progress.context) {
                        fail("another context is current after progress");
                    }
                    use_device(own);
                    if (!sending) {
                        buffer->check(place);
                    }
                }
            }
        }
    }
    exchange.barrier();
}

/** Buffers on every device in each process, and two workers. */
void several_devices(Peer &peer) {
    use_device(0);
    const int count = device_count();
    Exchange first(peer);
    Exchange second(peer);
    std::vector<std::unique_ptr<GuardedAllocation>> buffers;
    for (int device = 0; device < count; ++device) {
        use_device(device);
        buffers.push_back(std::make_unique<GuardedAllocation>(Allocator::device, 4 * kMiB));
        buffers.push_back(std::make_unique<GuardedAllocation>(Allocator::managed_cpu, 4 * kMiB));
    }
    use_device(0);
    for (size_t from = 0; from < buffers.size(); ++from) {
        for (size_t to = 0; to < buffers.size(); ++to) {
            set_activity("buffer " + std::to_string(from) + " to buffer " + std::to_string(to) +
                         " of " + std::to_string(count) + " devices");
            for (int sender : {0, 1}) {
                GuardedAllocation &memory = *buffers[peer.role == sender ? from : to];
                for (size_t size : {size_t{8}, 64 * kKiB, 4 * kMiB}) {
                    for (int i = 0; i < 3; ++i) {
                        first.message(sender, memory, size);
                        second.message(1 - sender, memory, size);
                    }
                }
            }
        }
    }
    first.barrier();
    second.barrier();
}

/** `--visible0=0,1 --visible1=1,0`: what each process sees of the devices. */
void visible_devices(Peer &peer) {
    if (setenv("CUDA_VISIBLE_DEVICES",
               peer.options.text("visible" + std::to_string(peer.role), "0").c_str(), 1) != 0) {
        fail("setenv");
    }
    use_device(0);  // skips the test where there is no such device
    Exchange exchange(peer);
    for (int device = 0; device < device_count(); ++device) {
        use_device(device);
        GuardedAllocation memory(Allocator::device, 4 * kMiB);
        for (size_t size : {size_t{8}, 64 * kKiB, 4 * kMiB}) {
            set_activity(std::to_string(size) + " bytes of a device that has another number there");
            exchange.use_long_enough(0, memory, size);
            exchange.use_long_enough(1, memory, size);
        }
    }
    exchange.barrier();
}

void taken_device(Peer &peer) {
    int mode = CU_COMPUTEMODE_DEFAULT;
    require(cuda().cuDeviceGetAttribute_(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0),
            "cuDeviceGetAttribute");
    if (mode != CU_COMPUTEMODE_EXCLUSIVE_PROCESS) {
        skip("needs a GPU in the compute mode EXCLUSIVE_PROCESS (nvidia-smi -c)");
    }
    if (peer.role == 0) {
        use_device(0);
    }
    peer.channel.barrier([] {});
    Exchange exchange(peer);
    for (const Allocator allocator : {Allocator::host, Allocator::pinned, Allocator::device,
                                      Allocator::managed_cpu, Allocator::managed_gpu}) {
        GuardedAllocation memory(peer.role == 0 ? allocator : Allocator::host, 4 * kMiB);
        for (const size_t size : {size_t{8}, 64 * kKiB, 4 * kMiB}) {
            set_activity(std::to_string(size) + " bytes of " + to_string(allocator) +
                         " memory and of a process without a context");
            exchange.use_long_enough(0, memory, size);
            exchange.use_long_enough(1, memory, size);
        }
    }
    if (peer.role == 1) {
        CUcontext context = nullptr;
        CUdeviceptr address = 0;
        if (counts_calls() && calls_of("cuDevicePrimaryCtxRetain") != 0) {
            fail("gpushm asked for a context where the process has none");
        }
        if (cuda().cuDevicePrimaryCtxRetain_(&context, 0) != CUDA_ERROR_DEVICE_UNAVAILABLE ||
            cuda().cuMemAlloc_(&address, 8) != CUDA_ERROR_INVALID_CONTEXT) {
            fail("the GPU of the other process is to be had");
        }
    }
    exchange.barrier();
}

}  // namespace gpushm::ucp_test
