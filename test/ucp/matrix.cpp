// SPDX-License-Identifier: BSD-3-Clause
// Messages between all kinds of memory, in all sizes that some limit depends on, at all alignments,
// checked byte by byte; with buffers that are used again and again, and with new ones.
#include "../mpi/pattern.hpp"
#include "check.hpp"
#include "messenger.hpp"

#include <algorithm>
#include <cstdio>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;

// Both sides of every limit: a mailbox cell, a slot with and without UCP's headers, chunks, rings.
constexpr size_t kLimits[] = {112,       8 * kKiB,   8 * kKiB + 128, 16 * kKiB,  32 * kKiB,
                              64 * kKiB, 128 * kKiB, 256 * kKiB,     512 * kKiB, 768 * kKiB,
                              kMiB,      2 * kMiB,   4 * kMiB,       8 * kMiB};
constexpr size_t kMisalignments[] = {0, 1, 3, 7, 4095};

struct Pair {
    Allocator from;
    Allocator to;
};

std::string to_string(const Pair &pair) {
    return std::string(ucp_test::to_string(pair.from)) + " -> " + ucp_test::to_string(pair.to);
}

void add_around(std::vector<size_t> &sizes, size_t size) {
    sizes.insert(sizes.end(), {size - 1, size, size + 1});
}

void sort_unique(std::vector<size_t> &sizes) {
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
}

std::vector<size_t> quick_sizes() {
    return {0,     1,     8,     113,    4095,   8191,   8193,   8321,
            32767, 32769, 65536, 262143, 262145, 524289, 1048577};
}

std::vector<size_t> full_sizes(size_t largest) {
    std::vector<size_t> sizes = {0};
    for (size_t size = 1; size <= largest; size *= 2) {
        add_around(sizes, size);
    }
    for (size_t limit : kLimits) {
        add_around(sizes, limit);
    }
    sizes.erase(
        std::remove_if(sizes.begin(), sizes.end(), [&](size_t size) { return size > largest + 1; }),
        sizes.end());
    sort_unique(sizes);
    return sizes;
}

std::vector<size_t> dense_sizes() {
    std::vector<size_t> sizes;
    for (size_t size = 0; size <= 130; ++size) {
        sizes.push_back(size);
    }
    return sizes;
}

class Matrix {
public:
    explicit Matrix(Peer &peer)
        : peer_(peer),
          full_(peer.options.has("full")),
          one_sided_(peer.options.text("rma", "y") == "y"),
          active_messages_(peer.options.text("am", "y") == "y"),
          session_(peer.channel, kAllFeatures),
          messenger_(peer, session_) {}

    void run();

private:
    void exchange(const Pair &pair, Operation operation, size_t size, int sender,
                  GuardedAllocation &source, GuardedAllocation &destination, size_t misalignments);
    std::vector<Operation> operations() const;
    void all_sizes(const Pair &pair, const std::vector<size_t> &sizes);
    void same_buffer(const Pair &pair);
    void new_buffers(const Pair &pair);
    void overwritten_at_once(const Pair &pair);

    Peer &peer_;
    const bool full_;
    const bool one_sided_;
    const bool active_messages_;
    Session session_;
    Messenger messenger_;
    uint64_t n_ = 0;  // messages; selects what is sampled
};

/** `misalignments`: selects one for either side. */
void Matrix::exchange(const Pair &pair, Operation operation, size_t size, int sender,
                      GuardedAllocation &source, GuardedAllocation &destination,
                      size_t misalignments) {
    const bool sending = peer_.role == sender;
    const uint64_t seed = mpi_test::message_seed(++n_, size);
    const size_t spare = operation == Operation::tag ? 100 : 0;
    const Placement from = {size, kMisalignments[misalignments % 5], size, seed};
    const Placement to = {size, kMisalignments[misalignments / 5 % 5], size + spare, seed};
    set_activity(to_string(pair) + ", " + ucp_test::to_string(operation) + ", " +
                 std::to_string(size) + " bytes, misalignment " +
                 std::to_string(from.misalignment) + " -> " + std::to_string(to.misalignment) +
                 ", from process " + std::to_string(sender));
    if (sending) {
        source.prepare_source(from);
        messenger_.transfer(operation, true, source, from);
    } else {
        destination.prepare_destination(to);
        messenger_.transfer(operation, false, destination, to);
        destination.check(to);
    }
}

std::vector<Operation> Matrix::operations() const {
    std::vector<Operation> all = {Operation::tag, Operation::tag, Operation::stream};
    if (active_messages_) {
        all.push_back(Operation::am);
    }
    if (one_sided_) {
        all.insert(all.end(), {Operation::put, Operation::get});
    }
    return all;
}

void Matrix::all_sizes(const Pair &pair, const std::vector<size_t> &sizes) {
    const size_t capacity = sizes.back() + 100;
    // A process is the source in one direction and the destination in the other.
    GuardedAllocation source(pair.from, capacity);
    GuardedAllocation destination(pair.to, capacity);
    const std::vector<Operation> usable = operations();
    for (size_t size : sizes) {
        const size_t repetitions = full_ && size <= kMiB + 1 ? usable.size() : 1;
        for (size_t i = 0; i < repetitions; ++i) {
            const Operation operation = usable[(full_ ? i : n_) % usable.size()];
            if (size == 0 && operation != Operation::tag && operation != Operation::am) {
                continue;
            }
            // Both directions of a size differ in alignment.
            exchange(pair, operation, size, static_cast<int>(n_ / 7 % 2), source, destination,
                     n_ / 3 * 7 + i);
        }
    }
}

/** A transport may keep a mapping of a buffer that pays for itself: the way of the messages changes
 * between the first and the last. */
void Matrix::same_buffer(const Pair &pair) {
    struct Series {
        size_t size;
        size_t count;
    };
    std::vector<Series> all = {{8, 60}, {64 * kKiB, 60}, {4 * kMiB + 1, 5}};
    if (full_) {
        all = {{8, 200}, {8 * kKiB + 1, 200}, {64 * kKiB, 200}, {kMiB - 1, 40}, {16 * kMiB, 8}};
    }
    for (const Series &series : all) {
        GuardedAllocation source(pair.from, series.size + 100);
        GuardedAllocation destination(pair.to, series.size + 100);
        for (size_t i = 0; i < series.count; ++i) {
            exchange(pair, Operation::tag, series.size, 0, source, destination, 0);
        }
    }
}

void Matrix::new_buffers(const Pair &pair) {
    const std::vector<size_t> sizes =
        full_ ? std::vector<size_t>{8, 8 * kKiB + 1, 64 * kKiB, kMiB + 3, 9 * kMiB}
              : std::vector<size_t>{8, 64 * kKiB, kMiB + 3};
    const size_t count = full_ ? 20 : 3;
    for (size_t size : sizes) {
        for (size_t i = 0; i < count; ++i) {
            GuardedAllocation source(pair.from, size + 100);
            GuardedAllocation destination(pair.to, size + 100);
            exchange(pair, Operation::tag, size, static_cast<int>(i % 2), source, destination, i);
        }
    }
}

/** A send that has ended may be overwritten: the receiver still gets what was there before. */
void Matrix::overwritten_at_once(const Pair &pair) {
    for (size_t size : {size_t{64}, 8 * kKiB, 64 * kKiB, 3 * kMiB}) {
        GuardedAllocation source(pair.from, size);
        GuardedAllocation destination(pair.to, size + 100);
        const std::vector<unsigned char> other(size, 0xee);
        for (size_t i = 0; i < (full_ ? 20 : 2); ++i) {
            exchange(pair, Operation::tag, size, 0, source, destination, 0);
            if (peer_.role == 0) {
                source.memory().write(GuardedAllocation::kGuardBytes, other.data(), size);
            }
        }
    }
}

void Matrix::run() {
    const size_t largest = peer_.options.number("largest-mib", full_ ? 64 : 1) * kMiB;
    const std::vector<Allocator> sources = allocators_of(peer_.options, "from");
    const std::vector<Allocator> destinations = allocators_of(peer_.options, "to");
    const std::vector<size_t> sizes = full_ ? full_sizes(largest) : quick_sizes();
    for (Allocator from : sources) {
        for (Allocator to : destinations) {
            const double start = now_seconds();
            const uint64_t before = n_;
            const Pair pair = {from, to};
            all_sizes(pair, sizes);
            const auto is_plain = [](Allocator one) {
                return one == Allocator::device || one == Allocator::host;
            };
            const bool plain = is_plain(from) && is_plain(to);
            if (full_ || plain || from == Allocator::managed_cpu || to == Allocator::managed_cpu) {
                same_buffer(pair);
            }
            new_buffers(pair);
            overwritten_at_once(pair);
            if (full_ || plain) {
                all_sizes(pair, dense_sizes());
            }
            if (!full_ && from == Allocator::device && to == Allocator::device) {
                all_sizes(pair, {4 * kMiB - 1, 4 * kMiB + 1, 8 * kMiB - 1, 8 * kMiB, 8 * kMiB + 1});
            }
            if (peer_.role == 0 && peer_.options.has("verbose")) {
                printf("%-28s %6llu messages, %.2f s\n", to_string(pair).c_str(),
                       static_cast<unsigned long long>(n_ - before), now_seconds() - start);
                fflush(stdout);
            }
        }
    }
    if (peer_.role == 0) {
        printf("matrix: %llu messages right, %zu x %zu kinds\n",
               static_cast<unsigned long long>(n_), sources.size(), destinations.size());
    }
    messenger_.barrier();
}

}  // namespace

void matrix(Peer &peer) {
    const bool same_device = peer.options.has("same-device");
    use_device(same_device ? 0 : peer.role % device_count());
    Matrix(peer).run();
}

}  // namespace gpushm::ucp_test
