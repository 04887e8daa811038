// SPDX-License-Identifier: BSD-3-Clause
#include "entry_points.hpp"

#if defined(__x86_64__)
#define SIMCUDA_ENTRY_POINT_NAMED(function)                                                    \
    __asm__(".text\n.p2align 4\n.globl " function "\n.type " function ", @function\n" function \
            ":\n"                                                                              \
            "push %rbp\nmov %rsp, %rbp\npush %r12\nsub $8, %rsp\n"                             \
            "add $8, %rsp\npop %r12\npop %rbp\njmp body_of_" function                          \
            "\n"                                                                               \
            ".size " function ", . - " function "\n");
#else
#define SIMCUDA_ENTRY_POINT_NAMED(function) \
    __asm__(".globl " function "\n.set " function ", body_of_" function "\n");
#endif

#define SIMCUDA_ENTRY_POINT(function) SIMCUDA_ENTRY_POINT_NAMED(#function)
#define SIMCUDA_PER_THREAD_ENTRY_POINT(arguments, function, form) \
    SIMCUDA_ENTRY_POINT_NAMED(#function #form)

SIMCUDA_ENTRY_POINTS(SIMCUDA_ENTRY_POINT)
SIMCUDA_ENTRY_POINTS_OF_11070(SIMCUDA_ENTRY_POINT)
SIMCUDA_ENTRY_POINTS_OF_OLD(SIMCUDA_ENTRY_POINT)
SIMCUDA_PER_THREAD_FUNCTIONS(SIMCUDA_PER_THREAD_ENTRY_POINT)
