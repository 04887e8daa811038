// SPDX-License-Identifier: BSD-3-Clause
// What kind of memory lies at an address, while that changes.
#include "../mpi/pattern.hpp"
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <sys/mman.h>

#include <cstring>
#include <stdexcept>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kBytes = 200000;

void write_memory(MemoryKind kind, void *to, const void *from, size_t length) {
    if (kind == MemoryKind::device) {
        cuda_driver().write(to, from, length);
    } else {
        std::memcpy(to, from, length);
    }
}

void read_memory(MemoryKind kind, void *to, const void *from, size_t length) {
    if (kind == MemoryKind::device) {
        cuda_driver().read(to, from, length);
    } else {
        std::memcpy(to, from, length);
    }
}

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

/** Sends from the memory, and into it, in sizes for each of UCP's ways. */
void use_memory(Session &session, MemoryKind kind, void *memory) {
    static uint64_t seed = 1;
    std::vector<unsigned char> content(kBytes);
    std::vector<unsigned char> received(kBytes);
    for (size_t length : {size_t{8}, size_t{3000}, kBytes}) {
        mpi_test::fill_pattern(content.data(), length, ++seed);
        write_memory(kind, memory, content.data(), length);
        send_to_oneself(session, memory, received.data(), length);
        expect_pattern(received, length, seed, "sent");

        mpi_test::fill_pattern(content.data(), length, ++seed);
        send_to_oneself(session, content.data(), memory, length);
        read_memory(kind, received.data(), memory, length);
        expect_pattern(received, length, seed, "received");
    }
}

void allocate_use_free(Session &session, MemoryKind kind) {
    void *memory = cuda_driver().allocate(kind, kBytes);
    set_activity(std::string("detection of ") + to_string(kind) + " memory");
    use_memory(session, kind, memory);
    cuda_driver().release(kind, memory);
}

/** Allocates until an allocation lies at `place`; null if none does. The others are freed. */
void *allocate_at(MemoryKind kind, void *place) {
    std::vector<void *> others;
    void *found = nullptr;
    while (found == nullptr && others.size() < 64) {
        void *memory = cuda_driver().allocate(kind, kBytes);
        if (memory == place) {
            found = memory;
        } else {
            others.push_back(memory);
        }
    }
    for (void *memory : others) {
        cuda_driver().release(kind, memory);
    }
    return found;
}

/** Whether the address was to be had. */
bool use_gpu_memory_at(Session &session, MemoryKind kind, void *place, MemoryKind before) {
    if (allocate_at(kind, place) == nullptr) {
        return false;
    }
    set_activity(std::string("an address of ") + to_string(before) + " memory that became " +
                 to_string(kind) + " memory");
    use_memory(session, kind, place);
    cuda_driver().release(kind, place);
    return true;
}

bool use_host_memory_at(Session &session, void *place, MemoryKind before) {
    void *memory = mmap(place, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != place) {
        if (memory != MAP_FAILED) {
            munmap(memory, kBytes);
        }
        return false;
    }
    set_activity(std::string("an address of ") + to_string(before) +
                 " memory that became host memory");
    use_memory(session, MemoryKind::host, place);
    munmap(place, kBytes);
    return true;
}

}  // namespace

void changing_kinds(Peer &peer) {
    Session session(UCP_FEATURE_TAG);
    size_t changes = 0;
    try {
        for (size_t round = 0; round < peer.options.number("rounds", 10); ++round) {
            void *place = cuda_driver().allocate(MemoryKind::device, kBytes);
            use_memory(session, MemoryKind::device, place);
            cuda_driver().release(MemoryKind::device, place);
            changes += use_gpu_memory_at(session, MemoryKind::managed, place, MemoryKind::device);
            changes += use_gpu_memory_at(session, MemoryKind::device, place, MemoryKind::managed);
            changes += use_host_memory_at(session, place, MemoryKind::device);
            changes += use_gpu_memory_at(session, MemoryKind::managed, place, MemoryKind::host);
            changes += use_host_memory_at(session, place, MemoryKind::managed);
            changes += use_gpu_memory_at(session, MemoryKind::device, place, MemoryKind::host);
        }
    } catch (const std::runtime_error &error) {
        fail("%s", error.what());
    }
    if (changes == 0) {
        skip("this driver never gives out an address again");
    }
}

void cuda_before_ucx(Peer &peer) {
    (void)peer;
    void *device = cuda_driver().allocate(MemoryKind::device, kBytes);
    void *managed = cuda_driver().allocate(MemoryKind::managed, kBytes);
    Session session(UCP_FEATURE_TAG);
    set_activity("device memory older than UCX");
    use_memory(session, MemoryKind::device, device);
    set_activity("managed memory older than UCX");
    use_memory(session, MemoryKind::managed, managed);
    cuda_driver().release(MemoryKind::device, device);
    cuda_driver().release(MemoryKind::managed, managed);
}

void cuda_after_ucx(Peer &peer) {
    (void)peer;
    Session session(UCP_FEATURE_TAG);
    std::vector<unsigned char> memory(kBytes);
    set_activity("host memory before CUDA");
    use_memory(session, MemoryKind::host, memory.data());
    allocate_use_free(session, MemoryKind::device);
    allocate_use_free(session, MemoryKind::managed);
    allocate_use_free(session, MemoryKind::pinned);
    set_activity("host memory beside CUDA");
    use_memory(session, MemoryKind::host, memory.data());
}

}  // namespace gpushm::ucp_test
