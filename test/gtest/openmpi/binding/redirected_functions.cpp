// SPDX-License-Identifier: BSD-3-Clause
// Functions of x86-64 for function_redirection_test.cpp, by how they begin. Each takes an int and
// returns the next one, but adds_two, and runs_into_itself and starts_over, which count down to 0.
#if defined(__x86_64__)

asm(R"(
.macro function name, alignment=4
        .text
        .p2align \alignment
        .globl \name
        .type \name, @function
\name:
.endm

.macro end name
        .size \name, . - \name
.endm

function plain
        push %rbx
        mov %edi, %ebx
        lea 1(%rbx), %eax
        pop %rbx
        ret
end plain

function begins_with_mark
        endbr64
        mov %edi, %eax
        add $1, %eax
        ret
end begins_with_mark

function reads_variable
        mov one(%rip), %eax
        add %edi, %eax
        ret
end reads_variable

function compares_variable              # a constant follows the address
        cmpl $1, one(%rip)
        lea 1(%rdi), %eax
        je 1f
        xor %eax, %eax
1:      ret
end compares_variable

function is_short
        lea 1(%rdi), %eax
        ret
end is_short

function branches
        test %edi, %edi
        je 1f
        lea 1(%rdi), %eax
        ret
1:      mov $1, %eax
        ret
end branches

function branches_far
        test %edi, %edi
        .byte 0x0f, 0x84                # je, by 32 bits
        .long 1f - . - 4
        lea 1(%rdi), %eax
        ret
1:      mov $1, %eax
        ret
end branches_far

function calls
        sub $8, %rsp
        call plain_inside
        add $8, %rsp
        ret
end calls

function jumps
        jmp plain_inside
end jumps

function adds_two
        mov %edi, %eax
        add $2, %eax
        ret
end adds_two

function runs_into_itself
        mov %edi, %eax
1:      test %eax, %eax
        je 2f
        dec %eax
        jmp 1b
2:      ret
end runs_into_itself

function starts_over
        test %edi, %edi
        je 1f
        dec %edi
        jmp starts_over
1:      mov %edi, %eax
        ret
end starts_over

        .p2align 4
        .skip 13, 0x90
function crosses_block, 0
        mov %edi, %eax
        add $1, %eax
        ret
end crosses_block

function has_no_room
        lea 1(%rdi), %eax
        ret
end has_no_room
        .byte 0x31, 0xc0, 0xc3          # another function, without a gap

function loops_by_count                 # a branch that has no long form
        mov %edi, %ecx
        jrcxz 1f
        lea 1(%rdi), %eax
        ret
1:      mov $1, %eax
        ret
end loops_by_count

function has_no_size
        lea 1(%rdi), %eax
        nop
        nop
        ret

        .p2align 4
plain_inside:
        lea 1(%rdi), %eax
        ret

        .data
one:    .long 1

        .text
)");

#endif
