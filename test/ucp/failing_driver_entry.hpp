// SPDX-License-Identifier: BSD-3-Clause
// The entry of each function of failing_driver.cpp; the record of a function is its `Function`.
#pragma once

#ifdef __x86_64__
// System V ABI for x86-64, 3.2.3: the arguments of all functions of the driver are integers, six of
// them in registers; those on the stack stay where they are. Seven pushes keep the stack aligned.
asm(R"(
    .text
    .type failing_driver_common, @function
failing_driver_common:
    push %rdi
    push %rsi
    push %rdx
    push %rcx
    push %r8
    push %r9
    push %rax
    mov %rax, %rdi
    call failing_driver_enter
    pop %r11
    pop %r9
    pop %r8
    pop %rcx
    pop %rdx
    pop %rsi
    pop %rdi
    test %eax, %eax
    jne 1f
    jmp *8(%r11)
1:  ret
)");

// The records lie side by side in a section; the linker names its ends.
#define FAILING_DRIVER_FUNCTION(name)                                            \
    asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name            \
        ":\n"                                                                    \
        "    lea failing_driver_" #name                                          \
        "(%rip), %rax\n    jmp failing_driver_common\n"                          \
        ".section .rodata\nfailing_driver_text_" #name ": .string \"" #name      \
        "\"\n"                                                                   \
        ".section failing_driver_list, \"aw\"\n.balign 8\nfailing_driver_" #name \
        ":\n"                                                                    \
        "    .quad failing_driver_text_" #name "\n    .quad 0\n    .quad 0\n.text\n");
#else  // The library is empty, and tests that need it are skipped.
#define FAILING_DRIVER_FUNCTION(name)
#endif
