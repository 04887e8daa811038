// SPDX-License-Identifier: BSD-3-Clause
#include "core/patching/function_redirection.hpp"

#if defined(__x86_64__)

#include "core/base/log.hpp"
#include "core/patching/instruction.hpp"
#include "core/patching/near_code.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace gpushm {
namespace {

constexpr size_t kJumpBytes = 5;    // of a jump by 32 bits
constexpr size_t kBlockBytes = 16;  // that a processor writes at once
constexpr size_t kMovedBytes =
    64;  // at most: the first instructions, longer where they stand now, and a far jump

uintptr_t address_of(const void *place) {
    return reinterpret_cast<uintptr_t>(place);
}

/** The size of a function in bytes; 0 where no symbol tells. */
size_t size_of(const void *function) {
    Dl_info info;
    void *found = nullptr;
    if (dladdr1(function, &info, &found, RTLD_DL_SYMENT) == 0 || found == nullptr ||
        info.dli_saddr != function) {
        return 0;
    }
    const auto *symbol = static_cast<const ElfW(Sym) *>(found);
    return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC ? symbol->st_size : 0;
}

/** The place for a jump: an indirect call must find an ENDBR64 at the beginning (Control-flow
 * Enforcement). */
unsigned char *jump_place(void *function) {
    static constexpr unsigned char kEndBranch[] = {0xf3, 0x0f, 0x1e, 0xfa};
    auto *const code = static_cast<unsigned char *>(function);
    return memcmp(code, kEndBranch, sizeof(kEndBranch)) == 0 ? code + sizeof(kEndBranch) : code;
}

/** A function, divided after the instructions that a jump at `jump` replaces. */
struct Function {
    const unsigned char *begin;
    const unsigned char *jump;
    const unsigned char *rest;
    const unsigned char *end;
};

/** The end of the instructions to be moved; null where it cannot be found. A function that is
 * shorter than a jump is followed by padding up to the next function. */
const unsigned char *end_of_moved(const unsigned char *jump, const unsigned char *end) {
    const unsigned char *next = jump;
    bool has_ended = false;
    while (next < jump + kJumpBytes) {
        Instruction found;
        const size_t available = has_ended ? kBlockBytes : static_cast<size_t>(end - next);
        if (!decode_instruction(next, available, &found) || (has_ended && !found.is_padding)) {
            return nullptr;
        }
        has_ended = has_ended || found.ends;
        next += found.length;
    }
    return next;
}

/** Whether the function jumps into the instructions to be moved only at their beginning. */
bool is_entered_at_beginning(const Function &function) {
    for (const unsigned char *next = function.begin; next < function.end;) {
        Instruction found;
        if (!decode_instruction(next, static_cast<size_t>(function.end - next), &found)) {
            return false;
        }
        const uintptr_t target = found.is_branch ? found.target(next) : 0;
        const bool is_call = next[found.opcode_at] == 0xe8 && target == address_of(function.begin);
        if (target >= address_of(function.begin) && target < address_of(function.rest) &&
            !is_call) {
            return false;
        }
        next += found.length;
    }
    return true;
}

/** Writes instructions that do at the new place what they did at the old one. */
class Mover {
public:
    explicit Mover(const NearCode::Room &room) : room_(room) {}

    /** False for what cannot be moved there. */
    bool move(const unsigned char *from, const Instruction &instruction) {
        if (instruction.relative_at == 0) {
            append(from, instruction.length);
            return true;
        }
        return instruction.relative_bytes == 1 ? move_short_branch(from, instruction)
                                               : move_relative(from, instruction);
    }

    void jump_to(const void *target) {
        write_far_jump(room_.writable + used_, target);
        used_ += kFarJumpBytes;
    }

private:
    void append(const void *bytes, size_t length) {
        memcpy(room_.writable + used_, bytes, length);
        used_ += length;
    }

    /** Writes the number that leads to `target` from `end`, an offset, at the offset `place`. */
    bool point(size_t place, size_t end, uintptr_t target) {
        const auto distance = static_cast<intptr_t>(target - address_of(room_.code + end));
        const auto relative = static_cast<int32_t>(distance);
        memcpy(room_.writable + place, &relative, sizeof(relative));
        return relative == distance;
    }

    bool move_relative(const unsigned char *from, const Instruction &instruction) {
        const size_t begin = used_;
        append(from, instruction.length);
        return point(begin + instruction.relative_at, used_, instruction.target(from));
    }

    /** The form of the branch with 32 bits, if it has one. */
    bool move_short_branch(const unsigned char *from, const Instruction &instruction) {
        constexpr unsigned char kJump = 0xe9;
        const unsigned char opcode = from[instruction.opcode_at];
        const unsigned char conditional[] = {0x0f, static_cast<unsigned char>(opcode + 0x10)};
        if (opcode == 0xeb) {
            append(&kJump, sizeof(kJump));
        } else if ((opcode & 0xf0) == 0x70) {
            append(conditional, sizeof(conditional));
        } else {
            return false;
        }
        used_ += sizeof(int32_t);
        return point(used_ - sizeof(int32_t), used_, instruction.target(from));
    }

    NearCode::Room room_;
    size_t used_ = 0;
};

/** Writes into `room` a copy of the function that calls as before: its first instructions and a
 * jump to the rest. */
bool move_beginning(const Function &function, const NearCode::Room &room) {
    Mover mover(room);
    for (const unsigned char *next = function.jump; next < function.rest;) {
        Instruction found;
        if (!decode_instruction(next, kBlockBytes, &found) || !mover.move(next, found)) {
            return false;
        }
        next += found.length;
    }
    mover.jump_to(function.rest);
    return true;
}

// Written in one piece, so that a thread that runs the function finds the old or the new
// instruction.
void write_at_once(unsigned char *block, const unsigned char *wanted) {
    uint64_t was[2];
    uint64_t becomes[2];
    memcpy(was, block, kBlockBytes);
    memcpy(becomes, wanted, kBlockBytes);
    bool is_done = false;
    while (!is_done) {  // NOLINT(bugprone-infinite-loop): the instruction sets it
        asm volatile("lock cmpxchg16b %1"
                     : "=@ccz"(is_done),
                       "+m"(*reinterpret_cast<unsigned char(*)[kBlockBytes]>(block)), "+a"(was[0]),
                       "+d"(was[1])
                     : "b"(becomes[0]), "c"(becomes[1])
                     : "memory");
    }
}

/** Where the function's beginning is, so that it can be written at once. */
unsigned char *block_of(unsigned char *jump) {
    return jump - address_of(jump) % kBlockBytes;
}

bool write_jump(unsigned char *jump, const unsigned char *target) {
    unsigned char *const block = block_of(jump);
    unsigned char wanted[kBlockBytes];
    memcpy(wanted, block, kBlockBytes);
    const auto relative = static_cast<int32_t>(target - (jump + kJumpBytes));
    unsigned char *const place = wanted + (jump - block);
    place[0] = 0xe9;
    memcpy(place + 1, &relative, sizeof(relative));

    const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    unsigned char *const page = block - address_of(block) % page_bytes;
    // Executable all the time: other threads may run other functions there.
    if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        GPUSHM_LOG(debug, "cannot write to the code of a function: %s", strerror(errno));
        return false;
    }
    write_at_once(block, wanted);
    mprotect(page, page_bytes, PROT_READ | PROT_EXEC);
    return true;
}

bool find_function(void *address, Function *function) {
    unsigned char *const jump = jump_place(address);
    const auto *const begin = static_cast<const unsigned char *>(address);
    const unsigned char *const end = begin + size_of(address);
    if (end <= jump || jump + kJumpBytes > block_of(jump) + kBlockBytes) {
        return false;
    }
    const unsigned char *const rest = end_of_moved(jump, end);
    *function = {begin, jump, rest, end};
    return rest != nullptr && is_entered_at_beginning(*function);
}

/** The functions whose first instructions have been moved. Code on a page does not change
 * afterwards, because a forked child uses it, too. */
class Functions {
public:
    static Functions &instance() {
        static Functions *const functions = new Functions;
        return *functions;
    }

    bool redirect(void *address, void *replacement, void **original) {
        const std::lock_guard<std::mutex> lock(mutex_);
        Moved *const moved = move(address);
        const NearCode::Room entry = moved != nullptr && !moved->is_redirected
                                         ? near_code_.take(address, kFarJumpBytes)
                                         : NearCode::Room();
        if (entry.code == nullptr) {
            return false;
        }
        write_far_jump(entry.writable, replacement);
        void *const before = *original;
        *original = moved->original;
        moved->is_redirected = write_jump(jump_place(address), entry.code);
        if (!moved->is_redirected) {
            *original = before;
        }
        return moved->is_redirected;
    }

    void *original(void *address) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Moved *const moved = move(address);
        return moved != nullptr ? moved->original : address;
    }

private:
    struct Moved {
        void *original;
        bool is_redirected;
    };

    /** Null where it cannot be moved. */
    Moved *move(void *address) {
        const auto known = moved_.find(address);
        if (known != moved_.end()) {
            return &known->second;
        }
        Function function;
        const NearCode::Room room = find_function(address, &function)
                                        ? near_code_.take(address, kMovedBytes)
                                        : NearCode::Room();
        if (room.code == nullptr || !move_beginning(function, room)) {
            return nullptr;
        }
        return &moved_.emplace(address, Moved{room.code, false}).first->second;
    }

    std::mutex mutex_;
    NearCode near_code_;
    std::unordered_map<void *, Moved> moved_;
};

}  // namespace

bool redirect_function(void *function, void *replacement, void **original) {
    return Functions::instance().redirect(function, replacement, original);
}

void *original_function(void *function) {
    return Functions::instance().original(function);
}

}  // namespace gpushm

#else

namespace gpushm {

/** Instructions of other processors are not supported. */
bool redirect_function(void *, void *, void **) {
    return false;
}
void *original_function(void *function) {
    return function;
}

}  // namespace gpushm

#endif
