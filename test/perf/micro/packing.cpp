// SPDX-License-Identifier: BSD-3-Clause
// Packing and unpacking of blocks at equal distances: by gpushm in device memory, and by the CPU in
// host memory.
#include "../memory.hpp"
#include "micro.hpp"

#include "core/copy/copy_pieces.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace gpushm::perf {
namespace {

/** Blocks with gaps of the same length. */
struct Shape {
    size_t block;
    size_t count;
    size_t pitch() const { return 2 * block; }
    size_t packed() const { return block * count; }
};

Shape shape_of(const benchmark::State &state) {
    const auto block = static_cast<size_t>(state.range(0));
    return {block, static_cast<size_t>(state.range(1)) / block};
}

CopyPiece piece_of(const Shape &shape, char *blocks, char *packed, bool pack) {
    return pack ? CopyPiece{packed, blocks, shape.block, {shape.count, shape.block, shape.pitch()}}
                : CopyPiece{blocks, packed, shape.block, {shape.count, shape.pitch(), shape.block}};
}

void copy_by_gpu(benchmark::State &state, bool pack) {
    const Driver &driver = micro_driver();
    const Shape shape = shape_of(state);
    try {
        Memory blocks(&driver, MemoryKind::device, shape.pitch() * shape.count);
        Memory packed(&driver, MemoryKind::device, shape.packed());
        const CountedCalls counted(state);
        for (auto _ : state) {
            if (copy_pieces({piece_of(shape, blocks.address(), packed.address(), pack)}) !=
                Status::ok) {
                state.SkipWithError("the copy failed");
                break;
            }
        }
    } catch (const std::exception &error) {
        state.SkipWithError(error.what());
    }
    count_bytes(state, shape.packed());
}

void copy_by_cpu(benchmark::State &state, bool pack) {
    const Shape shape = shape_of(state);
    Memory blocks(nullptr, MemoryKind::host, shape.pitch() * shape.count);
    Memory packed(nullptr, MemoryKind::host, shape.packed());
    for (auto _ : state) {
        for (size_t i = 0; i < shape.count; ++i) {
            char *const apart = blocks.address() + i * shape.pitch();
            char *const together = packed.address() + i * shape.block;
            pack ? memcpy(together, apart, shape.block) : memcpy(apart, together, shape.block);
        }
        benchmark::ClobberMemory();
    }
    count_bytes(state, shape.packed());
}

void register_both(const std::string &where, void (*run)(benchmark::State &, bool pack)) {
    for (const bool pack : {true, false}) {
        benchmark::RegisterBenchmark(((pack ? "pack/" : "unpack/") + where).c_str(), run, pack)
            ->ArgNames({"block", "bytes"})
            ->ArgsProduct({{4, 32, 512}, {4 << 10, 64 << 10, 4 << 20}})
            ->UseRealTime();
    }
}

}  // namespace

void register_packing_by_gpu() {
    register_both("device", copy_by_gpu);
}

void register_packing_by_cpu() {
    register_both("host", copy_by_cpu);
}

}  // namespace gpushm::perf
