// SPDX-License-Identifier: BSD-3-Clause
// Decodes instructions of x86-64 as far as is needed to move them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** The parts of an instruction that depend on where it stands (Intel 64 and IA-32 Architectures
 * Software Developer's Manual, volume 2, chapter 2 and appendix A). */
struct Instruction {
    size_t length = 0;
    size_t opcode_at = 0;    // behind the prefixes
    size_t relative_at = 0;  // of a number that counts from the instruction's end; 0: there is none
    size_t relative_bytes = 0;  // 1, or 4
    bool is_branch = false;     // by that number
    bool ends = false;          // what follows is reached from elsewhere only: a jump or a return
    bool is_padding = false;    // it does nothing (nop), or is there never to be reached (int3)

    /** The address that the relative number of the instruction at `code` leads to. */
    uintptr_t target(const unsigned char *code) const;
};

/** False for bytes that are no instruction, that go beyond `available`, or that no C compiler emits
 * in a function. */
bool decode_instruction(const unsigned char *code, size_t available, Instruction *instruction);

}  // namespace gpushm
