// SPDX-License-Identifier: BSD-3-Clause
// An application's kernel that waits.
#pragma once

// "simcuda_spin": the first thread of each block reads the 32-bit word whose address is its
// parameter until that is not 0, and the others wait for it. The simulation knows it by its name;
// this is PTX for a real GPU.
constexpr char kSpinImage[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry simcuda_spin(.param .u64 address)
{
    .reg .pred %done;
    .reg .u32 %value, %thread;
    .reg .u64 %word;
    ld.param.u64 %word, [address];
    cvta.to.global.u64 %word, %word;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %done, %thread, 0;
    @%done bra ready;
again:
    ld.volatile.global.u32 %value, [%word];
    setp.ne.u32 %done, %value, 0;
    @!%done bra again;
ready:
    bar.sync 0;
    ret;
}
)";

// More than a GPU holds, and nothing as large fits beside them: its SMs run 1536 or 2048 threads.
constexpr unsigned kFillingBlocks = 2048;
constexpr unsigned kFillingThreads = 512;
