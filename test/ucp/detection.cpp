// SPDX-License-Identifier: BSD-3-Clause
// What kind of memory lies at an address, while that changes.
#include "../mpi/pattern.hpp"
#include "allocation.hpp"
#include "check.hpp"
#include "cuda_api.hpp"
#include "messenger.hpp"
#include "session.hpp"

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <vector>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kBytes = 200000;

void send_to_oneself(Session &session, const void *from, void *to, size_t length) {
    const ucp_request_param_t parameters = plain_request();
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(session.worker().get(), to, length, 1, ~ucp_tag_t{0}, &parameters);
    ucs_status_ptr_t send = ucp_tag_send_nbx(session.ep(), from, length, 1, &parameters);
    require(session.worker().wait(receive), "receive");
    require(session.worker().wait(send), "send");
}

void expect_pattern(const std::vector<unsigned char> &bytes, size_t length, uint64_t seed,
                    const char *what) {
    if (const auto wrong = mpi_test::find_pattern_mismatch(bytes.data(), length, seed)) {
        fail("%s, %zu bytes: byte %zu is 0x%02x instead of 0x%02x", what, length, wrong->position,
             wrong->got, wrong->expected);
    }
}

/** Sends from the memory, and into it. `write` and `read` are its owner's. */
template <typename Write, typename Read>
void use(Session &session, void *memory, size_t length, Write write, Read read) {
    static uint64_t seed = 1;
    std::vector<unsigned char> content(length);
    std::vector<unsigned char> received(length);
    mpi_test::fill_pattern(content.data(), length, ++seed);
    write(content.data());
    send_to_oneself(session, memory, received.data(), length);
    expect_pattern(received, length, seed, "sent");

    mpi_test::fill_pattern(content.data(), length, ++seed);
    send_to_oneself(session, content.data(), memory, length);
    read(received.data());
    expect_pattern(received, length, seed, "received");
}

void use_memory(Session &session, Allocation &memory, size_t length) {
    use(
        session, memory.data(), length, [&](const void *from) { memory.write(0, from, length); },
        [&](void *to) { memory.read(0, to, length); });
}

void use_host_memory(Session &session, void *memory, size_t length) {
    use(
        session, memory, length, [&](const void *from) { std::memcpy(memory, from, length); },
        [&](void *to) { std::memcpy(to, memory, length); });
}

// For each of UCP's ways.
constexpr size_t kSizes[] = {8, 3000, kBytes};

void use_memory(Session &session, Allocation &memory) {
    for (const size_t length : kSizes) {
        use_memory(session, memory, length);
    }
}

void use_host_memory(Session &session, void *memory) {
    for (const size_t length : kSizes) {
        use_host_memory(session, memory, length);
    }
}

/** Allocates until an allocation lies at `place`; null if none does. The others are freed. */
std::unique_ptr<Allocation> allocate_at(Allocator allocator, const void *place) {
    std::vector<std::unique_ptr<Allocation>> others;
    while (others.size() < 64) {
        auto memory = std::make_unique<Allocation>(allocator, kBytes);
        if (memory->data() == place) {
            return memory;
        }
        others.push_back(std::move(memory));
    }
    return nullptr;
}

/** Whether the address was to be had. */
bool use_gpu_memory_at(Session &session, Allocator allocator, const void *place,
                       const char *before) {
    const std::unique_ptr<Allocation> memory = allocate_at(allocator, place);
    if (memory == nullptr) {
        return false;
    }
    set_activity(std::string("an address of ") + before + " memory that became " +
                 to_string(allocator) + " memory");
    use_memory(session, *memory);
    return true;
}

bool use_host_memory_at(Session &session, void *place, const char *before) {
    void *memory = mmap(place, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != place) {
        if (memory != MAP_FAILED) {
            munmap(memory, kBytes);
        }
        return false;
    }
    set_activity(std::string("an address of ") + before + " memory that became host memory");
    use_host_memory(session, place);
    munmap(place, kBytes);
    return true;
}

/** Of the driver, for a message on one of its sides. */
unsigned long most_lookups(Allocator allocator) {
    switch (allocator) {
        case Allocator::vmm_shared:
            return 1;  // whether kernels may access it
        case Allocator::vmm:
        case Allocator::pool:
            return 8;  // its kind as well, each time that UCP, whose versions differ, or gpushm
                       // needs it
        default:
            return 0;
    }
}

}  // namespace

void changing_kinds(Peer &peer) {
    use_device(0);
    Session session(UCP_FEATURE_TAG);
    size_t changes = 0;
    for (size_t round = 0; round < peer.options.number("rounds", 10); ++round) {
        void *place = nullptr;
        {
            Allocation first(Allocator::device, kBytes);
            place = first.data();
            use_memory(session, first);
        }
        changes += use_gpu_memory_at(session, Allocator::managed_cpu, place, "device");
        changes += use_gpu_memory_at(session, Allocator::device, place, "managed");
        changes += use_host_memory_at(session, place, "device");
        changes += use_gpu_memory_at(session, Allocator::managed_gpu, place, "host");
        changes += use_host_memory_at(session, place, "managed");
        changes += use_gpu_memory_at(session, Allocator::device, place, "host");
    }
    if (changes == 0) {
        skip("this driver never gives out an address again");
    }
}

void reused_addresses(Peer &peer) {
    use_device(0);
    Session session(UCP_FEATURE_TAG);
    const std::vector<Allocator> allocators = allocators_of(peer.options);
    for (size_t round = 0; round < peer.options.number("rounds", 10000); ++round) {
        // Each comes after each other one.
        const size_t count = allocators.size();
        Allocation memory(allocators[(round + round / count) % count], 4096);
        set_activity(std::string("round ") + std::to_string(round) + ", " +
                     to_string(memory.allocator()) + " memory");
        use_memory(session, memory, 16 + round % 4000);
    }
}

void cuda_before_ucx(Peer &peer) {
    use_device(0);
    std::vector<std::unique_ptr<Allocation>> memory;
    for (const Allocator allocator : allocators_of(peer.options)) {
        memory.push_back(std::make_unique<Allocation>(allocator, kBytes));
    }
    Session session(UCP_FEATURE_TAG);
    for (const std::unique_ptr<Allocation> &allocation : memory) {
        set_activity(std::string(to_string(allocation->allocator())) + " memory older than UCX");
        use_memory(session, *allocation);
    }
}

void cuda_after_ucx(Peer &peer) {
    Session session(UCP_FEATURE_TAG);
    std::vector<unsigned char> memory(kBytes);
    set_activity("host memory before CUDA");
    use_host_memory(session, memory.data());
    use_device(0);
    for (const Allocator allocator : allocators_of(peer.options)) {
        set_activity(std::string(to_string(allocator)) + " memory younger than UCX");
        Allocation fresh(allocator, kBytes);
        use_memory(session, fresh);
    }
    set_activity("host memory beside CUDA");
    use_host_memory(session, memory.data());
}

void lookups(Peer &peer) {
    use_device(0);
    if (!counts_calls()) {
        skip("the driver does not count calls");
    }
    Session session(peer.channel, kAllFeatures);
    Messenger messenger(peer, session);
    constexpr const char *kQuery = "cuPointerGetAttributes";
    for (const Allocator allocator : allocators_of(peer.options)) {
        const unsigned long most = most_lookups(allocator);
        for (const size_t size : {size_t{8}, size_t{4000}, size_t{1} << 20}) {
            GuardedAllocation memory(allocator, size);
            for (int sender : {0, 1}) {
                const auto exchange = [&](uint64_t seed) {
                    const Placement place = {size, 0, size, seed};
                    const bool sending = peer.role == sender;
                    sending ? memory.prepare_source(place) : memory.prepare_destination(place);
                    const unsigned long before = calls_of(kQuery);
                    messenger.transfer(Operation::tag, sending, memory, place);
                    const unsigned long asked = calls_of(kQuery) - before;
                    if (!sending) {
                        memory.check(place);
                    }
                    return asked;
                };
                // Until each slot and span of shared memory has been used.
                const uint64_t warm_up = size <= 4000 ? 600 : 30;
                for (uint64_t seed = 1; seed <= warm_up; ++seed) {
                    exchange(seed);
                }
                unsigned long asked = 0;
                for (uint64_t seed = 1; seed <= 20; ++seed) {
                    asked += exchange(warm_up + seed);
                }
                if (asked > 20 * most) {
                    fail(
                        "%lu look-ups, not %lu, in 20 messages of %zu bytes of %s memory, process "
                        "%d %s",
                        asked, 20 * most, size, to_string(allocator), peer.role,
                        peer.role == sender ? "sending" : "receiving");
                }
            }
        }
    }
    messenger.barrier();
}

}  // namespace gpushm::ucp_test
