// SPDX-License-Identifier: BSD-3-Clause
#include "core/patching/instruction.hpp"

#include <cstring>

namespace gpushm {
namespace {

/** What follows an opcode. */
enum Operands : unsigned {
    kNothing = 0,
    kModRm = 1,  // and by it perhaps a SIB byte and a displacement
    kByte = 2,
    kWord = 4,
    kOperand = 8,       // 4 bytes, 2 with the prefix 66
    kWideOperand = 16,  // 8 bytes with REX.W, else as kOperand
    kAddress = 32,      // 8 bytes
    kTest = 64,  // only where the ModR/M byte says that this is a TEST: an operand of this opcode's
                 // width
    kBranch = 128,  // by kByte or 4 bytes
    kUnknown = 256,
};

bool is_within(unsigned opcode, unsigned first, unsigned last) {
    return opcode >= first && opcode <= last;
}

/** Opcodes below 40: eight times the same eight operations. */
unsigned arithmetic_operands(unsigned opcode) {
    switch (opcode & 7u) {
        case 4:
            return kByte;
        case 5:
            return kOperand;
        case 6:
        case 7:
            return kUnknown;
        default:
            return kModRm;
    }
}

unsigned control_operands(unsigned opcode) {  // from C0 on
    switch (opcode) {
        case 0xc0:
        case 0xc1:
        case 0xc6:
            return kModRm | kByte;
        case 0xc2:
        case 0xca:
            return kWord;
        case 0xc7:
            return kModRm | kOperand;
        case 0xc8:
            return kWord | kByte;
        case 0xcd:
        case 0xe4:
        case 0xe5:
        case 0xe6:
        case 0xe7:
            return kByte;
        case 0xce:
        case 0xd4:
        case 0xd5:
        case 0xd6:
        case 0xea:
            return kUnknown;
        case 0xe0:
        case 0xe1:
        case 0xe2:
        case 0xe3:
        case 0xeb:
            return kBranch | kByte;
        case 0xe8:
        case 0xe9:
            return kBranch;
        case 0xf6:
        case 0xf7:
            return kModRm | kTest;
        default:
            return is_within(opcode, 0xd0, 0xdf) ? (opcode == 0xd7 ? kNothing : kModRm)
                                                 : (opcode >= 0xfe ? kModRm : kNothing);
    }
}

unsigned one_byte_operands(unsigned opcode) {
    if (opcode < 0x40) {
        return arithmetic_operands(opcode);
    }
    if (opcode >= 0xc0) {
        return control_operands(opcode);
    }
    if (is_within(opcode, 0x70, 0x7f)) {
        return kBranch | kByte;
    }
    if (is_within(opcode, 0x80, 0x8f)) {
        return opcode == 0x82   ? kUnknown
               : opcode == 0x81 ? kModRm | kOperand
               : opcode < 0x84  ? kModRm | kByte
                                : kModRm;
    }
    if (is_within(opcode, 0xa0, 0xa3)) {
        return kAddress;
    }
    if (is_within(opcode, 0xb0, 0xbf)) {
        return opcode < 0xb8 ? kByte : kWideOperand;
    }
    switch (opcode) {
        case 0x60:
        case 0x61:
        case 0x62:
        case 0x9a:
            return kUnknown;
        case 0x63:
            return kModRm;
        case 0x68:
        case 0xa9:
            return kOperand;
        case 0x69:
            return kModRm | kOperand;
        case 0x6a:
        case 0xa8:
            return kByte;
        case 0x6b:
            return kModRm | kByte;
        default:
            return kNothing;
    }
}

unsigned two_byte_operands(unsigned opcode) {  // behind 0F
    if (is_within(opcode, 0x80, 0x8f)) {
        return kBranch;
    }
    if (is_within(opcode, 0x30, 0x37) || is_within(opcode, 0xc8, 0xcf)) {
        return kNothing;
    }
    switch (opcode) {
        case 0x04:
        case 0x0a:
        case 0x0c:
        case 0x0f:
        case 0x24:
        case 0x26:
            return kUnknown;
        case 0x05:
        case 0x06:
        case 0x07:
        case 0x08:
        case 0x09:
        case 0x0b:
        case 0x77:
            return kNothing;
        case 0xa0:
        case 0xa1:
        case 0xa2:
        case 0xa8:
        case 0xa9:
        case 0xaa:
            return kNothing;
        case 0x70:
        case 0x71:
        case 0x72:
        case 0x73:
            return kModRm | kByte;
        case 0xa4:
        case 0xac:
        case 0xba:
        case 0xc2:
        case 0xc4:
        case 0xc5:
        case 0xc6:
            return kModRm | kByte;
        default:
            return kModRm;
    }
}

/** Of the maps of opcodes that VEX and EVEX name; map 1 is that behind 0F. */
unsigned vector_operands(unsigned map, unsigned opcode) {
    switch (map) {
        case 1:
            return two_byte_operands(opcode);
        case 2:
        case 5:
        case 6:
            return kModRm;
        case 3:
            return kModRm | kByte;
        default:
            return kUnknown;
    }
}

/** Reads an instruction from its beginning to its end. */
class Reader {
public:
    Reader(const unsigned char *code, size_t available)
        : code_(code), available_(available < 15 ? available : 15) {}

    bool read(Instruction *found) {
        read_prefixes();
        found->opcode_at = at_;
        const unsigned first = peek();
        const unsigned operands = read_opcode();
        if ((operands & kUnknown) != 0 || !read_operands(operands, found) || at_ > available_) {
            return false;
        }
        found->length = at_;
        describe(first, found);
        return true;
    }

private:
    unsigned peek() const { return at_ < available_ ? code_[at_] : 0u; }
    unsigned next() {
        const unsigned byte = peek();
        ++at_;
        return byte;
    }

    void read_prefixes() {
        for (;; ++at_) {
            switch (peek()) {
                case 0x66:
                    has_short_operands_ = true;
                    break;
                case 0x67:
                    has_short_addresses_ = true;
                    break;
                case 0x26:
                case 0x2e:
                case 0x36:
                case 0x3e:
                case 0x64:
                case 0x65:
                case 0xf0:
                case 0xf2:
                case 0xf3:
                    break;
                default:
                    if ((peek() & 0xf0u) == 0x40) {
                        is_wide_ = (next() & 8u) != 0;
                    }
                    return;
            }
            if (at_ >= available_) {
                return;
            }
        }
    }

    unsigned read_opcode() {
        opcode_ = next();
        switch (opcode_) {
            case 0x0f:
                return read_two_byte_opcode();
            case 0xc5:
                ++at_;
                return vector_operands(1, next());
            case 0xc4:
                return read_vector_opcode(2, 0x1f);
            case 0x62:
                return read_vector_opcode(3, 0x07);
            default:
                return one_byte_operands(opcode_);
        }
    }

    unsigned read_two_byte_opcode() {
        second_ = next();
        if (second_ == 0x38 || second_ == 0x3a) {
            ++at_;
            return second_ == 0x38 ? kModRm : kModRm | kByte;
        }
        return two_byte_operands(second_);
    }

    unsigned read_vector_opcode(size_t prefix_bytes, unsigned map_bits) {
        const unsigned map = peek() & map_bits;
        at_ += prefix_bytes;
        return vector_operands(map, next());
    }

    bool read_operands(unsigned operands, Instruction *found) {
        if ((operands & kBranch) != 0) {
            found->is_branch = true;
            found->relative_at = at_;
            found->relative_bytes = (operands & kByte) != 0 ? 1 : 4;
            at_ += found->relative_bytes;
            return found->relative_bytes == 1 || is_wide_ || !has_short_operands_;
        }
        if ((operands & kModRm) != 0 && !read_mod_rm(found)) {
            return false;
        }
        if ((operands & kAddress) != 0 && has_short_addresses_) {
            return false;
        }
        const size_t operand = has_short_operands_ && !is_wide_ ? 2 : 4;
        at_ += (operands & kByte) != 0 ? 1 : 0;
        at_ += (operands & kWord) != 0 ? 2 : 0;
        at_ += (operands & kAddress) != 0 ? 8 : 0;
        at_ += (operands & kOperand) != 0 ? operand : 0;
        at_ += (operands & kWideOperand) != 0 ? (is_wide_ ? 8 : operand) : 0;
        if ((operands & kTest) != 0 && extension_ < 2) {
            at_ += opcode_ == 0xf6 ? 1 : operand;
        }
        return true;
    }

    bool read_mod_rm(Instruction *found) {
        const unsigned mod_rm = next();
        const unsigned mode = mod_rm >> 6;
        const unsigned base = mod_rm & 7u;
        extension_ = mod_rm >> 3 & 7u;
        if (mode == 3) {
            return !(opcode_ == 0xc7 && extension_ == 7);  // XBEGIN, a branch
        }
        const unsigned sib_base = base == 4 ? next() & 7u : base;
        if (mode == 0 && base == 5) {
            if (has_short_addresses_) {
                return false;
            }
            found->relative_at = at_;
            found->relative_bytes = 4;
        }
        at_ += mode == 1 ? 1 : mode == 2 || sib_base == 5 ? 4 : 0;
        return !(opcode_ == 0x8f && extension_ != 0);  // an instruction of AMD's XOP
    }

    void describe(unsigned first, Instruction *found) const {
        const bool jumps_by_pointer = first == 0xff && (extension_ == 4 || extension_ == 5);
        found->ends =
            first == 0xc3 || first == 0xc2 || first == 0xe9 || first == 0xeb || jumps_by_pointer;
        found->is_padding = first == 0x90 || first == 0xcc || (first == 0x0f && second_ == 0x1f);
    }

    const unsigned char *code_;
    size_t available_;
    size_t at_ = 0;
    bool has_short_operands_ = false;
    bool has_short_addresses_ = false;
    bool is_wide_ = false;
    unsigned opcode_ = 0;
    unsigned second_ = 0;     // of two bytes
    unsigned extension_ = 0;  // of the opcode, in the ModR/M byte
};

}  // namespace

uintptr_t Instruction::target(const unsigned char *code) const {
    int32_t relative = 0;
    if (relative_bytes == 1) {
        relative = static_cast<signed char>(code[relative_at]);
    } else {
        memcpy(&relative, code + relative_at, sizeof(relative));
    }
    return reinterpret_cast<uintptr_t>(code) + length +
           static_cast<uintptr_t>(static_cast<intptr_t>(relative));
}

bool decode_instruction(const unsigned char *code, size_t available, Instruction *instruction) {
    *instruction = Instruction();
    return Reader(code, available).read(instruction);
}

}  // namespace gpushm
