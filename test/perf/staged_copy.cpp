// SPDX-License-Identifier: BSD-3-Clause
#include "staged_copy.hpp"

#include "figures.hpp"
#include "memory.hpp"

#include <algorithm>

namespace gpushm::perf {
namespace {

constexpr size_t kChunks[] = {size_t{128} << 10, size_t{256} << 10, size_t{512} << 10,
                              size_t{1} << 20, size_t{2} << 20};
constexpr size_t kMaxChunk = kChunks[4];
constexpr size_t kDepth = 8;  // chunks under way, so 16 MiB are page-locked

class StagedCopy : public RawOperation {
public:
    StagedCopy(const RawSettings &settings, uint64_t seed)
        : driver_(*settings.driver),
          destination_device_(settings.other_device),
          seed_(seed),
          out_(driver_, settings.device, Direction::device_to_host, kDepth),
          source_(settings.driver, MemoryKind::device, settings.bytes),
          staging_(settings.driver, MemoryKind::registered, kDepth * kMaxChunk),
          in_(driver_, settings.other_device, Direction::host_to_device, kDepth),
          destination_(settings.driver, MemoryKind::device, settings.bytes) {
        driver_.use_device(settings.device);
        source_.fill(0, settings.bytes, seed);
    }

    // The first variant is the whole message as one chunk, if it fits.
    unsigned variants(size_t size) const override {
        unsigned count = 1;
        for (const size_t chunk : kChunks) {
            count += chunk < size ? 1 : 0;
        }
        return count;
    }
    void choose_variant(unsigned variant) override {
        chunk_ = variant == 0 ? kMaxChunk : kChunks[variant - 1];
    }

    void single(size_t size) override {
        std::vector<Copy> chunks;
        cut(0, size, &chunks);
        run(chunks);
    }

    void window(size_t size) override {
        std::vector<Copy> chunks;
        for (unsigned i = 0; i < window_of(size); ++i) {
            cut(i % slots_of(size) * stride_of(size), size, &chunks);
        }
        run(chunks);
    }

    /** Two batches, one after the other. */
    bool batch(size_t size) override {
        const unsigned count = window_of(size);
        if (count * stride_of(size) > kDepth * kMaxChunk) {
            return false;
        }
        std::vector<Copy> out, in;
        for (unsigned i = 0; i < count; ++i) {
            const size_t at = i * stride_of(size);
            out.push_back({staging_.address() + at, source_.address() + at, size});
            in.push_back({destination_.address() + at, staging_.address() + at, size});
        }
        if (!out_.start_batch(out)) {
            return false;
        }
        out_.finish();
        const bool started = in_.start_batch(in);
        in_.finish();
        return started;
    }

    void clear(size_t size) override {
        driver_.use_device(destination_device_);
        destination_.clear(0, slots_of(size) * stride_of(size));
    }

    void check(size_t size, unsigned slots) override {
        driver_.use_device(destination_device_);
        for (unsigned i = 0; i < slots; ++i) {
            destination_.check(i * stride_of(size), size, seed_, i * stride_of(size));
        }
    }

private:
    void cut(size_t at, size_t size, std::vector<Copy> *chunks) const {
        for (size_t done = 0; done < size; done += chunk_) {
            chunks->push_back({destination_.address() + at + done, source_.address() + at + done,
                               std::min(chunk_, size - done)});
        }
    }

    void run(const std::vector<Copy> &chunks) {
        size_t issued = 0, moved = 0, over = 0;
        while (over < chunks.size()) {
            if (issued < chunks.size() && issued - over < kDepth) {
                out_.start({stage(issued), chunks[issued].source, chunks[issued].bytes});
                out_.mark(issued % kDepth);
                ++issued;
            }
            if (moved < issued && out_.reached(moved % kDepth)) {
                in_.start({chunks[moved].destination, stage(moved), chunks[moved].bytes});
                in_.mark(moved % kDepth);
                ++moved;
            }
            if (over < moved && in_.reached(over % kDepth)) {
                ++over;
            }
        }
    }

    char *stage(size_t chunk) const { return staging_.address() + chunk % kDepth * kMaxChunk; }

    const Driver &driver_;
    int destination_device_;
    uint64_t seed_;
    size_t chunk_ = kMaxChunk;
    // In this order: each queue makes its device current to what follows.
    CopyQueue out_;
    Memory source_;
    Memory staging_;
    CopyQueue in_;
    Memory destination_;
};

}  // namespace

std::unique_ptr<RawOperation> make_staged_copy(const RawSettings &settings, uint64_t seed) {
    return std::make_unique<StagedCopy>(settings, seed);
}

}  // namespace gpushm::perf
