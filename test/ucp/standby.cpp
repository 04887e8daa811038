// SPDX-License-Identifier: BSD-3-Clause
// Messages that the standby kernel takes part in (src/core/standby/standby_kernel.hpp). The kernel
// makes way for calls that wait for the GPU, so the tests prepare many messages at once, and send
// them in a row.
#include "kernels.hpp"
#include "standby_support.hpp"

#include <cstring>

namespace gpushm::ucp_test {
namespace {

// ---------------------------------------------------------------- sheets of messages

/** Where messages lie in a buffer, each behind and in front of bytes that nothing may change. */
struct Sheet {
    struct Place {
        size_t offset;
        size_t size;
    };
    std::vector<Place> places;
    size_t bytes = 0;

    Sheet(const std::vector<size_t> &sizes, size_t rotation) {
        static constexpr size_t kMisalignments[] = {0, 8, 0, 1, 4, 0, 2, 12, 3, 0, 15};
        size_t end = 0;
        for (size_t i = 0; i < sizes.size(); ++i) {
            const size_t aligned = (end + 32 + 63) / 64 * 64;
            places.push_back({aligned + kMisalignments[(i + rotation) % 11], sizes[i]});
            end = places.back().offset + sizes[i];
        }
        bytes = end + 32;
    }
};

/** Of each of `sizes`, from each process to the other. `window`: so many in both directions at
 * once; 0: one after the other. */
void send_sheet(Peer &peer, Talk &talk, Allocator from, Allocator to,
                const std::vector<size_t> &sizes, size_t window) {
    static uint64_t round = 0;
    ++round;
    const auto other = static_cast<uint64_t>(1 - peer.role);
    const Sheet source(sizes, round);
    const Sheet destination(sizes, round % 2 != 0 ? round : 3 * round);  // aligned alike, and not
    Allocation own(from, source.bytes);
    Allocation inbox(to, destination.bytes);
    own.write(0, pattern(source.bytes, 4 * round + static_cast<uint64_t>(peer.role)).data(),
              source.bytes);
    Bytes expected = pattern(destination.bytes, 4 * round + 2);
    inbox.write(0, expected.data(), expected.size());
    talk.barrier();
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < sizes.size(); ++i) {
        for (int sender : {0, 1}) {
            const Allocation &side = peer.role == sender ? own : inbox;
            const Sheet::Place &place = (peer.role == sender ? source : destination).places[i];
            requests.push_back(talk.start(sender, side.data() + place.offset, place.size));
            if (requests.size() >= 2 * window || i + 1 == sizes.size()) {
                for (ucs_status_ptr_t request : requests) {
                    require(talk.wait(request), "send or receive");
                }
                requests.clear();
            }
        }
    }
    const Bytes sent = pattern(source.bytes, 4 * round + other);
    for (size_t i = 0; i < sizes.size(); ++i) {
        std::memcpy(expected.data() + destination.places[i].offset,
                    sent.data() + source.places[i].offset, sizes[i]);
    }
    Bytes got(destination.bytes);
    inbox.read(0, got.data(), got.size());
    const auto wrong = std::mismatch(got.begin(), got.end(), expected.begin());
    if (wrong.first != got.end()) {
        const auto at = static_cast<size_t>(wrong.first - got.begin());
        size_t nearest = 0;
        while (nearest + 1 < sizes.size() && destination.places[nearest + 1].offset <= at) {
            ++nearest;
        }
        fail("message of %zu bytes, misalignment %zu -> %zu: byte %zd is 0x%02x instead of 0x%02x",
             sizes[nearest], source.places[nearest].offset % 64,
             destination.places[nearest].offset % 64,
             static_cast<ssize_t>(at) - static_cast<ssize_t>(destination.places[nearest].offset),
             *wrong.first, *wrong.second);
    }
    talk.barrier();
}

std::vector<size_t> tiny_sizes() {
    std::vector<size_t> sizes(131);
    for (size_t i = 0; i < sizes.size(); ++i) {
        sizes[i] = i;
    }
    return sizes;
}

std::vector<size_t> sizes_around_powers() {
    std::vector<size_t> sizes;
    for (size_t power = 256; power <= 256 * kKiB; power *= 2) {
        sizes.insert(sizes.end(), {power - 1, power, power + 1});
    }
    return sizes;
}

}  // namespace

void standby_messages(Peer &peer) {
    use_own_device(peer);
    Talk talk(peer);
    const auto kinds = [&](const char *side) {
        return peer.options.has(side)
                   ? allocators_of(peer.options, side)
                   : std::vector<Allocator>{Allocator::host, Allocator::pinned, Allocator::device,
                                            Allocator::managed_cpu};
    };
    for (Allocator from : kinds("from")) {
        for (Allocator to : kinds("to")) {
            for (const std::vector<size_t> &sizes : {tiny_sizes(), sizes_around_powers()}) {
                for (size_t window : {0, 64}) {
                    set_activity(std::string(to_string(from)) + " -> " + to_string(to) +
                                 (window == 0 ? ", in a row" : ", a window"));
                    send_sheet(peer, talk, from, to, sizes, window);
                }
            }
        }
    }
}

/** There and back: what has arrived is not what the message before it was, and is read at once by a
 * new stream that waits for nothing, or by the CPU. */
void standby_visibility(Peer &peer) {
    use_own_device(peer);
    Talk talk(peer);
    Kernels kernels;
    constexpr size_t kContents = 61;  // not a divisor of what rings hold
    const size_t count = peer.options.number("count", 1000);
    size_t read = 0;
    for (Allocator from : {Allocator::device, Allocator::host}) {
        for (Allocator to : {Allocator::device, Allocator::host, Allocator::pinned}) {
            if (from == Allocator::host && to != Allocator::device) {
                continue;
            }
            for (size_t size : {size_t{8}, size_t{96}, size_t{1000}, 8 * kKiB, 64 * kKiB}) {
                set_activity(std::string(to_string(from)) + " -> " + to_string(to) + ", " +
                             std::to_string(size) + " bytes, read at once");
                const Bytes contents = pattern(kContents * size, size);
                Allocation own(from, contents.size());
                own.write(0, contents.data(), contents.size());
                Allocation inbox(to, size);
                talk.barrier();
                for (size_t i = 0; i < count / 20 + 1; ++i) {
                    const size_t at = i % kContents * size;
                    for (int sender : {0, 1}) {
                        const bool sending = peer.role == sender;
                        talk.message(sender, sending ? own.data() + at : inbox.data(), size);
                        if (sending) {
                            continue;
                        }
                        ++read;
                        const bool right =
                            to == Allocator::device
                                ? kernels.checksum(inbox.data(), size) ==
                                      checksum_of(contents.data() + at, size)
                                : std::memcmp(inbox.data(), contents.data() + at, size) == 0;
                        if (!right) {
                            fail("message %zu is not seen when it was said to be there", i);
                        }
                    }
                }
            }
        }
    }
    printf("process %d: %zu messages read at once by the CPU and %s\n", peer.role, read,
           kernels.available() ? "kernels" : "copies on new streams");
    talk.barrier();
}

namespace {

/** How a message ended here; both processes know whether it did on both sides. A side that does not
 * hear of the other's failure ends it by itself. */
ucs_status_t end_message(Peer &peer, Talk &talk, ucs_status_ptr_t request, bool *both_ended_well) {
    constexpr double kGraceSeconds = 0.1;
    const auto status = [&] {
        return UCS_PTR_IS_PTR(request) ? ucp_request_check_status(request)
                                       : UCS_PTR_STATUS(request);
    };
    bool told = false;
    const auto tell = [&] {
        talk.progress();
        if (!told && status() != UCS_INPROGRESS) {
            told = true;
            peer.channel.send(status() == UCS_OK ? "well" : "failed");
        }
    };
    const std::string other = peer.channel.receive(tell);
    const double deadline = now_seconds() + kGraceSeconds;
    while (!told) {
        tell();
        if (!told && other != "well" && now_seconds() > deadline) {
            told = true;
            peer.channel.send("untold");
        }
    }
    if (status() == UCS_INPROGRESS) {
        ucp_request_cancel(talk.session().worker().get(), request);
        talk.session().endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
        talk.session().disconnect();
    }
    const ucs_status_t own = talk.wait(request);
    *both_ended_well = own == UCS_OK && other == "well";
    return own;
}

}  // namespace

/** In process 1, and with it goes its context. What arrives in the other one is right, everything
 * ends, and in a new context both go on. */
void standby_dies(Peer &peer) {
    const auto set =
        reinterpret_cast<int (*)(const char *, const char *)>(driver_control("simcuda_set"));
    if (set == nullptr || set("SIMCUDA_KERNEL_DIES", "") != 0) {
        skip("kernels of this driver cannot be made to die");
    }
    constexpr size_t kCount = 200;
    const Bytes contents = pattern(kCount * 8, 1);
    const Allocator kind = peer.role == 0 ? Allocator::host : Allocator::device;
    const size_t commands[] = {20, 1, 7};
    const Watchdog watchdog("messages of a process whose kernel has died");
    for (size_t dying : commands) {
        use_own_device(peer);
        Talk talk(peer, UCP_ERR_HANDLING_MODE_PEER);
        // What is in a lost context nobody can free.
        Allocation &own = *new Allocation(kind, contents.size());
        Allocation &inbox = *new Allocation(kind, contents.size());
        own.write(0, contents.data(), contents.size());
        inbox.write(0, Bytes(contents.size(), 0).data(), contents.size());
        talk.barrier();
        if (peer.role == 1) {
            set("SIMCUDA_KERNEL_DIES", std::to_string(dying).c_str());
        }
        bool well = true;
        size_t i = 0;
        for (; i < kCount && well; ++i) {
            set_activity("message " + std::to_string(i) + ", the kernel dies after " +
                         std::to_string(dying) + " copies");
            const int sender = static_cast<int>(i % 2);
            const Allocation &side = peer.role == sender ? own : inbox;
            const ucs_status_t status =
                end_message(peer, talk, talk.start(sender, side.data() + 8 * i, 8), &well);
            if (status == UCS_OK && peer.role == 0 && sender == 1 &&
                std::memcmp(inbox.data() + 8 * i, contents.data() + 8 * i, 8) != 0) {
                fail("wrong data was said to be right");
            }
        }
        if (peer.role == 1) {
            set("SIMCUDA_KERNEL_DIES", "");
            reset_device(peer.role % device_count());
        }
        printf("process %d: %zu messages until the kernel died after %zu copies\n", peer.role, i,
               dying);
        peer.channel.barrier(talk.progress_function());
    }
    set_activity("messages after a kernel has died");
    use_own_device(peer);
    Talk talk(peer);
    send_sheet(peer, talk, Allocator::device, Allocator::device, sizes_around_powers(), 0);
}

}  // namespace gpushm::ucp_test
