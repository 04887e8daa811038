// SPDX-License-Identifier: BSD-3-Clause
// A kernel that reads memory, by which pages of managed memory come to its GPU.
#pragma once

#include <cstdint>

// "simcuda_touch": each thread reads one byte of each of its pages of 4 KiB. Its only parameter is
// a TouchedRange. The simulation knows it by its name; this is PTX for a real GPU.
struct TouchedRange {
    std::uint64_t address;
    std::uint64_t bytes;
};

constexpr char kTouchImage[] = R"(
.version 7.4
.target sm_70
.address_size 64
.visible .entry simcuda_touch(.param .align 8 .b8 range[16])
{
    .reg .pred %over;
    .reg .u32 %block, %blocks, %threads, %thread, %value;
    .reg .u64 %address, %bytes, %at, %step, %byte;
    ld.param.u64 %address, [range];
    ld.param.u64 %bytes, [range+8];
    cvta.to.global.u64 %address, %address;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %block, %threads, %thread;
    mul.lo.u32 %blocks, %blocks, %threads;
    mul.wide.u32 %at, %thread, 4096;
    mul.wide.u32 %step, %blocks, 4096;
again:
    setp.ge.u64 %over, %at, %bytes;
    @%over bra ready;
    add.u64 %byte, %at, %address;
    ld.volatile.global.u8 %value, [%byte];
    add.u64 %at, %at, %step;
    bra again;
ready:
    ret;
}
)";

constexpr unsigned kTouchThreads = 256;
constexpr std::uint64_t kTouchedPage = 4096;
