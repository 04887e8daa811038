// SPDX-License-Identifier: BSD-3-Clause
#include "collectives.hpp"

#include "../memory.hpp"
#include "placed_buffers.hpp"

#include <stdexcept>

namespace gpushm::perf {
namespace {

constexpr int kRoot = 0;
// What ranks add up is small whole numbers, so that sums of floats are exact in any order. Their
// number is prime, so that no block has the values of another one.
constexpr unsigned kValues = 8191;

class Collective : public Measurement {
public:
    Collective(const Cell &cell, MpiRanks &ranks, const Driver *driver)
        : cell_(cell), ranks_(ranks), driver_(driver) {
        if (cell.is_placed()) {
            placed_ = std::make_unique<PlacedBuffers>(
                *driver, is_root() ? cell.sender_on_gpu() : cell.receiver_on_gpu());
        }
    }

    void prepare(size_t size) override;
    void renew_contents() override;
    double once() override;
    void check() override;

private:
    bool is_root() const { return ranks_.rank() == kRoot; }
    size_t count() const { return static_cast<size_t>(ranks_.count()); }
    /** How many blocks of the size this rank sends and receives. */
    size_t blocks_sent() const;
    size_t blocks_received() const;

    std::unique_ptr<Memory> allocate(MemoryKind kind, size_t blocks) const;
    void call() const;
    uint64_t seed_of(size_t sender, size_t receiver) const;
    float value(size_t i, size_t rank) const {
        return static_cast<float>((i + 7 * contents_) % kValues + rank);
    }
    void fill_floats();
    void check_floats() const;

    const Cell cell_;
    MpiRanks &ranks_;
    const Driver *driver_;
    size_t size_ = 0;
    uint64_t contents_ = 0;  // counts renewals, alike on all ranks
    std::unique_ptr<Memory> sent_;
    std::unique_ptr<Memory> received_;
    std::unique_ptr<PlacedBuffers> placed_;  // null where no managed memory is placed
};

size_t Collective::blocks_sent() const {
    switch (cell_.test) {
        case Test::barrier:
            return 0;
        case Test::bcast:
            return is_root() ? 1 : 0;
        case Test::scatter:
            return is_root() ? count() : 0;
        case Test::reduce_scatter:
        case Test::alltoall:
            return count();
        default:
            return 1;
    }
}

size_t Collective::blocks_received() const {
    switch (cell_.test) {
        case Test::barrier:
            return 0;
        case Test::bcast:
            return is_root() ? 0 : 1;
        case Test::reduce:
            return is_root() ? 1 : 0;
        case Test::gather:
            return is_root() ? count() : 0;
        case Test::allgather:
        case Test::alltoall:
            return count();
        default:
            return 1;
    }
}

std::unique_ptr<Memory> Collective::allocate(MemoryKind kind, size_t blocks) const {
    if (blocks == 0) {
        return nullptr;
    }
    const bool unmapped = cell_.situation == Situation::unmapped && kind == MemoryKind::device;
    return std::make_unique<Memory>(driver_, unmapped ? MemoryKind::unmappable : kind,
                                    blocks * size_);
}

void Collective::prepare(size_t size) {
    size_ = size;
    sent_.reset();
    received_.reset();
    sent_ = allocate(cell_.from, blocks_sent());
    received_ = allocate(cell_.to, blocks_received());
}

/** Blocks that all receive are for the first one. */
uint64_t Collective::seed_of(size_t sender, size_t receiver) const {
    return ((contents_ * count() + sender) * count() + receiver) << 16;
}

void Collective::renew_contents() {
    ++contents_;
    if (received_) {
        received_->clear(0, blocks_received() * size_);
    }
    const auto rank = static_cast<size_t>(ranks_.rank());
    if (cell_.is_reduction()) {
        fill_floats();
    } else {
        for (size_t i = 0; i < blocks_sent(); ++i) {
            sent_->fill(i * size_, size_, seed_of(rank, i));
        }
    }
    if (placed_) {
        const auto pages = [this](const std::unique_ptr<Memory> &memory) {
            return memory ? std::vector<PageRange>{{memory->address(), size_}}
                          : std::vector<PageRange>{};
        };
        placed_->use(pages(sent_), pages(received_));
    }
}

void Collective::fill_floats() {
    std::vector<float> values(blocks_sent() * size_ / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = value(i, static_cast<size_t>(ranks_.rank()));
    }
    sent_->write(0, reinterpret_cast<const unsigned char *>(values.data()),
                 values.size() * sizeof(float));
}

void Collective::check_floats() const {
    const auto *sums = reinterpret_cast<const float *>(received_->read(0, size_));
    const auto all = static_cast<float>(count());
    const size_t elements = size_ / sizeof(float);
    const size_t first =
        cell_.test == Test::reduce_scatter ? static_cast<size_t>(ranks_.rank()) * elements : 0;
    for (size_t i = 0; i < elements; ++i) {
        const float expected = all * value(first + i, 0) + all * (all - 1) / 2;
        if (sums[i] != expected) {
            throw std::runtime_error("WRONG DATA: element " + std::to_string(i) + " is " +
                                     std::to_string(sums[i]) + ", not " + std::to_string(expected));
        }
    }
}

void Collective::check() {
    if (!received_) {
        return;
    }
    if (cell_.is_reduction()) {
        check_floats();
        return;
    }
    const bool of_all = cell_.test != Test::bcast && cell_.test != Test::scatter;
    const bool own_block = cell_.test == Test::scatter || cell_.test == Test::alltoall;
    for (size_t i = 0; i < blocks_received(); ++i) {
        received_->check(
            i * size_, size_,
            seed_of(of_all ? i : kRoot, own_block ? static_cast<size_t>(ranks_.rank()) : 0));
    }
}

double Collective::once() {
    if (placed_) {
        placed_->work_before();
    }
    ranks_.barrier();
    const double start = now_us();
    call();
    if (placed_) {
        placed_->work_after();
    }
    const double time = now_us() - start - (placed_ ? placed_->work_us() : 0);
    return time / ranks_.count();
}

void Collective::call() const {
    const MPI_Comm comm = ranks_.communicator();
    char *const from = sent_ ? sent_->address() : nullptr;
    char *const to = received_ ? received_->address() : nullptr;
    const int bytes = static_cast<int>(size_);
    const int floats = bytes / static_cast<int>(sizeof(float));
    switch (cell_.test) {
        case Test::barrier:
            MPI_Barrier(comm);
            break;
        case Test::bcast:
            MPI_Bcast(is_root() ? from : to, bytes, MPI_CHAR, kRoot, comm);
            break;
        case Test::reduce:
            MPI_Reduce(from, to, floats, MPI_FLOAT, MPI_SUM, kRoot, comm);
            break;
        case Test::allreduce:
            MPI_Allreduce(from, to, floats, MPI_FLOAT, MPI_SUM, comm);
            break;
        case Test::reduce_scatter:
            MPI_Reduce_scatter_block(from, to, floats, MPI_FLOAT, MPI_SUM, comm);
            break;
        case Test::gather:
            MPI_Gather(from, bytes, MPI_CHAR, to, bytes, MPI_CHAR, kRoot, comm);
            break;
        case Test::scatter:
            MPI_Scatter(from, bytes, MPI_CHAR, to, bytes, MPI_CHAR, kRoot, comm);
            break;
        case Test::allgather:
            MPI_Allgather(from, bytes, MPI_CHAR, to, bytes, MPI_CHAR, comm);
            break;
        case Test::alltoall:
            MPI_Alltoall(from, bytes, MPI_CHAR, to, bytes, MPI_CHAR, comm);
            break;
        default:
            break;
    }
}

}  // namespace

std::unique_ptr<Measurement> measure_collective(const Cell &cell, MpiRanks &ranks,
                                                const Driver *driver) {
    return std::make_unique<Collective>(cell, ranks, driver);
}

}  // namespace gpushm::perf
