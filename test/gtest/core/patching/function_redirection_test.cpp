// SPDX-License-Identifier: BSD-3-Clause
// redirect_function: all calls of a function reach the replacement, which can still call the
// original.
#include "core/patching/function_redirection.hpp"
#include "core/patching/instruction.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#if defined(__x86_64__)

namespace gpushm {
namespace {

using Function = int (*)(int);

constexpr int kMark = 1000;

Function original = nullptr;
int calls = 0;

int replacement(int value) {
    ++calls;
    return original(value) + kMark;
}

/** Each test has its own copy of the library, which stays loaded and changed. */
class FunctionRedirectionTest : public testing::Test {
protected:
    FunctionRedirectionTest() {
        static int number = 0;  // the loader opens no name twice
        const std::string path = testing::TempDir() + "redirected_functions." +
                                 std::to_string(getpid()) + "." + std::to_string(++number) + ".so";
        std::ofstream(path, std::ios::binary)
            << std::ifstream(CALLER_DIR "/.libs/redirected_functions.so", std::ios::binary).rdbuf();
        library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        EXPECT_NE(library_, nullptr) << dlerror();
        unlink(path.c_str());
        original = nullptr;
        calls = 0;
    }

    Function find(const char *name) const {
        return reinterpret_cast<Function>(dlsym(library_, name));
    }

    static bool redirect(Function function) {
        return redirect_function(reinterpret_cast<void *>(function),
                                 reinterpret_cast<void *>(&replacement),
                                 reinterpret_cast<void **>(&original));
    }

    void *library_;
};

TEST_F(FunctionRedirectionTest, ReachesEveryCall) {
    for (const char *name : {"plain", "begins_with_mark", "reads_variable", "compares_variable",
                             "is_short", "branches", "branches_far", "calls", "jumps"}) {
        const Function before = find(name);
        ASSERT_NE(before, nullptr) << name;
        ASSERT_EQ(before(6), 7) << name;
        ASSERT_TRUE(redirect(before)) << name;
        for (const int value : {0, 6}) {
            calls = 0;
            EXPECT_EQ(before(value), value + 1 + kMark) << name;
            EXPECT_EQ(find(name)(value), value + 1 + kMark) << name;
            EXPECT_EQ(original(value), value + 1) << name;
            EXPECT_EQ(calls, 2) << name;
        }
    }
}

TEST_F(FunctionRedirectionTest, KnowsTheOriginalBeforeAndAfter) {
    const Function function = find("reads_variable");
    const auto known = [&] {
        return reinterpret_cast<Function>(original_function(reinterpret_cast<void *>(function)));
    };
    const Function before = known();
    EXPECT_EQ(before(6), 7);
    ASSERT_TRUE(redirect(function));
    EXPECT_EQ(before(6), 7);
    EXPECT_EQ(known()(6), 7);
    EXPECT_EQ(function(6), 7 + kMark);
}

TEST_F(FunctionRedirectionTest, RedirectsAFunctionOnce) {
    const Function function = find("plain");
    ASSERT_TRUE(redirect(function));
    const Function known = original;
    EXPECT_FALSE(redirect(function));
    EXPECT_EQ(original, known);
    EXPECT_EQ(function(6), 7 + kMark);
}

TEST_F(FunctionRedirectionTest, KeepsTheMarkThatIndirectCallsLookFor) {
    const Function function = find("begins_with_mark");
    constexpr unsigned char kMarkOfBranches[] = {0xf3, 0x0f, 0x1e, 0xfa};
    ASSERT_TRUE(redirect(function));
    EXPECT_EQ(
        memcmp(reinterpret_cast<const void *>(function), kMarkOfBranches, sizeof(kMarkOfBranches)),
        0);
}

TEST_F(FunctionRedirectionTest, LeavesWhatCannotBeMoved) {
    for (const char *name : {"runs_into_itself", "starts_over", "crosses_block", "has_no_room",
                             "loops_by_count", "has_no_size"}) {
        const Function function = find(name);
        ASSERT_NE(function, nullptr) << name;
        const int answer = function(6);
        EXPECT_FALSE(redirect(function)) << name;
        EXPECT_EQ(original, nullptr) << name;
        EXPECT_EQ(original_function(reinterpret_cast<void *>(function)),
                  reinterpret_cast<void *>(function))
            << name;
        EXPECT_EQ(function(6), answer) << name;
    }
}

/** The mappings of the code that contains `function`, with their permissions. */
std::string mapping_of(Function function) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        size_t dash = 0;
        const uintptr_t begin = std::stoul(line, &dash, 16);
        const uintptr_t end = std::stoul(line.substr(dash + 1), nullptr, 16);
        const auto place = reinterpret_cast<uintptr_t>(function);
        if (begin <= place && place < end) {
            return line;
        }
    }
    return "";
}

TEST_F(FunctionRedirectionTest, LeavesCodeAsProtectedAsItWas) {
    const Function function = find("plain");
    const std::string before = mapping_of(function);
    ASSERT_TRUE(redirect(function));
    EXPECT_EQ(mapping_of(function), before);
}

/** From now on this process cannot make executable memory writable. */
bool forbid_writable_code() {
    constexpr unsigned kBoth = PROT_WRITE | PROT_EXEC;
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kBoth),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kBoth, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(FunctionRedirectionTest, ChangesNothingWhereCodeMustNotBeWritten) {
    const Function function = find("plain");
    const auto in_child = [&function] {
        const bool is_forbidden = forbid_writable_code();
        const bool is_left = !redirect(function) && original == nullptr && function(6) == 7;
        _exit(is_forbidden && is_left ? 0 : 1);
    };
    EXPECT_EXIT(in_child(), testing::ExitedWithCode(0), "");
}

// The child changes a function while the parent uses a function that it has changed after the fork.
TEST_F(FunctionRedirectionTest, SharesNoCodeWithAChild) {
    ASSERT_TRUE(redirect(find("plain")));
    int turns[2];
    ASSERT_EQ(pipe(turns), 0);
    const pid_t child = fork();
    if (child == 0) {
        char turn = 0;
        const Function adds_two = find("adds_two");
        const bool is_right =
            read(turns[0], &turn, 1) == 1 && redirect(adds_two) && adds_two(6) == 8 + kMark;
        _exit(is_right ? 0 : 1);
    }
    const Function branches = find("branches");
    ASSERT_TRUE(redirect(branches));
    ASSERT_EQ(write(turns[1], "", 1), 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(branches(0), 1 + kMark);
    EXPECT_EQ(branches(6), 7 + kMark);
    close(turns[0]);
    close(turns[1]);
}

// ---------------------------------------------------------------- instructions

struct Case {
    std::vector<unsigned char> bytes;
    size_t relative_at;
    bool ends;
};

TEST(InstructionTest, KnowsLengthsAndWhatDependsOnThePlace) {
    const std::vector<Case> cases = {
        {{0x41, 0x57}, 0, false},                                // push %r15
        {{0x48, 0x8b, 0x05, 0x11, 0x3d, 0x09, 0x00}, 3, false},  // mov 0x93d11(%rip),%rax
        {{0x48, 0x83, 0xec, 0x08}, 0, false},                    // sub $8,%rsp
        {{0x48, 0x81, 0xec, 0x88, 0x00, 0x00, 0x00}, 0, false},  // sub $0x88,%rsp
        {{0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0x00, 0x00, 0x00}, 0, false},  // mov %fs:0x28,%rax
        {{0x66, 0x83, 0x3d, 0x01, 0x02, 0x03, 0x00, 0x07}, 3, false},  // cmpw $7,0x30201(%rip)
        {{0x66, 0x81, 0xff, 0x34, 0x12}, 0, false},                    // cmp $0x1234,%di
        {{0xf7, 0xc7, 0x01, 0x00, 0x00, 0x00}, 0, false},              // test $1,%edi
        {{0xf6, 0x05, 0x01, 0x02, 0x03, 0x00, 0x01}, 2, false},        // testb $1,0x30201(%rip)
        {{0xf7, 0xd8}, 0, false},                                      // neg %eax
        {{0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}, 0, false},              // movabs
        {{0xc7, 0x44, 0x24, 0x08, 0x01, 0x00, 0x00, 0x00}, 0, false},  // movl $1,8(%rsp)
        {{0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00}, 0, false},  // nopl 0(%rax,%rax,1)
        {{0xc5, 0xfa, 0x6f, 0x05, 0x01, 0x02, 0x03, 0x00},
         4,
         false},                                                 // vmovdqu 0x30201(%rip),%xmm0
        {{0xc4, 0xe3, 0x7d, 0x39, 0xc1, 0x01}, 0, false},        // vextracti128 $1,%ymm0,%xmm1
        {{0x62, 0xf1, 0x7f, 0x48, 0x6f, 0x46, 0x01}, 0, false},  // vmovdqu8 0x40(%rsi),%zmm0
        {{0x66, 0x0f, 0x3a, 0x0f, 0xc1, 0x08}, 0, false},        // palignr $8,%xmm1,%xmm0
        {{0xe8, 0x01, 0x02, 0x03, 0x00}, 1, false},              // call
        {{0x0f, 0x84, 0x01, 0x02, 0x03, 0x00}, 2, false},        // je
        {{0xe9, 0x01, 0x02, 0x03, 0x00}, 1, true},               // jmp
        {{0xeb, 0x10}, 1, true},                                 // jmp
        {{0x3e, 0xff, 0xe0}, 0, true},                           // notrack jmp *%rax
        {{0xff, 0x25, 0x01, 0x02, 0x03, 0x00}, 2, true},         // jmp *0x30201(%rip)
        {{0xff, 0x10}, 0, false},                                // call *(%rax)
        {{0xf3, 0xc3}, 0, true},                                 // repz ret
    };
    for (const Case &wanted : cases) {
        Instruction found;
        const std::string bytes = testing::PrintToString(wanted.bytes);
        ASSERT_TRUE(decode_instruction(wanted.bytes.data(), wanted.bytes.size(), &found)) << bytes;
        EXPECT_EQ(found.length, wanted.bytes.size()) << bytes;
        EXPECT_EQ(found.relative_at, wanted.relative_at) << bytes;
        EXPECT_EQ(found.ends, wanted.ends) << bytes;
        EXPECT_FALSE(decode_instruction(wanted.bytes.data(), wanted.bytes.size() - 1, &found))
            << bytes << " cut";
    }
}

TEST(InstructionTest, RefusesWhatItDoesNotKnow) {
    const std::vector<std::vector<unsigned char>> unknown = {
        {0x06},
        {0x9a, 0, 0, 0, 0, 0, 0},
        {0xc7, 0xf8, 0, 0, 0, 0},        // two of another mode, xbegin
        {0x67, 0x8b, 0x05, 0, 0, 0, 0},  // by EIP
    };
    for (const std::vector<unsigned char> &bytes : unknown) {
        Instruction found;
        EXPECT_FALSE(decode_instruction(bytes.data(), bytes.size(), &found))
            << testing::PrintToString(bytes);
    }
}

}  // namespace
}  // namespace gpushm

#endif
