// Machine code of the entry points: MPI_X and PMPI_X, and the interposed dlsym and dlopen.
//
// Everything here ends in a jump, with every argument register and the stack as the caller left
// them: so one piece of code serves every signature (double results, variable arguments, arguments
// on the stack), and the functions jumped to see the caller's return address. dlsym and dlopen need
// the latter: what RTLD_NEXT, RTLD_DEFAULT, $ORIGIN and RUNPATH mean depends on it.
#include "stubs.h"

// clang-format off
#if defined(__x86_64__)

asm(R"(
        .section .text.od_stubs, "ax", @progbits
        .p2align 4
        .hidden od_stubs
        .globl  od_stubs
od_stubs:
        .macro  od_stub index, name
        .p2align 4
        .globl  \name
        .type   \name, @function
        .globl  P\name
        .type   P\name, @function
\name:
P\name:
        endbr64
        jmp     *od_entry + 8 * \index(%rip)
        .size   \name, . - \name
        .size   P\name, . - P\name
        .endm

        .macro  od_lazy_stub index
        .p2align 4
        endbr64
        pushq   $\index
        jmp     od_lazy_common
        .endm

        .macro  od_missing_stub index
        .p2align 4
        endbr64
        movl    $\index, %edi
        jmp     od_missing_common
        .endm

        .macro  od_entry_slot index
        .quad   od_lazy + 16 * \index
        .endm
)");

#elif defined(__aarch64__)

asm(R"(
        .section .text.od_stubs, "ax", @progbits
        .p2align 5
        .hidden od_stubs
        .globl  od_stubs
od_stubs:
        .macro  od_stub index, name
        .p2align 5
        .globl  \name
        .type   \name, %function
        .globl  P\name
        .type   P\name, %function
\name:
P\name:
        hint    #34
        adrp    x16, od_entry + 8 * \index
        add     x16, x16, :lo12:od_entry + 8 * \index
        ldar    x16, [x16]
        br      x16
        .size   \name, . - \name
        .size   P\name, . - P\name
        .endm

        .macro  od_lazy_stub index
        .p2align 4
        hint    #34
        mov     w17, #\index
        b       od_lazy_common
        .endm

        .macro  od_missing_stub index
        .p2align 4
        hint    #34
        mov     w0, #\index
        b       od_missing_common
        .endm

        .macro  od_entry_slot index
        .xword  od_lazy + 16 * \index
        .endm
)");

#else
#error "The loader has entry points for x86-64 and aarch64 only."
#endif

#define OD_ENTRY(index, name) asm("od_stub " #index ", " #name);
#include "loader_entries.inc"

asm(R"(
        .p2align 4
        .hidden od_lazy
        .globl  od_lazy
od_lazy:
)");
#define OD_ENTRY(index, name) asm("od_lazy_stub " #index);
#include "loader_entries.inc"

asm(R"(
        .p2align 4
        .hidden od_missing
        .globl  od_missing
od_missing:
)");
#define OD_ENTRY(index, name) asm("od_missing_stub " #index);
#include "loader_entries.inc"

#if defined(__x86_64__)

// On arrival at od_lazy_common the stack holds the index and above it the caller's return address;
// it is aligned to 16 bytes there. Saved: the six integer argument registers, rax (number of vector
// registers of a variadic call), r10 (static chain) and xmm0-7. 64 bytes of pushes keep alignment.
asm(R"(
        .p2align 4
        .type   od_lazy_common, @function
od_lazy_common:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        pushq   %r10
        .cfi_adjust_cfa_offset 8
        movl    64(%rsp), %edi
        subq    $128, %rsp
        .cfi_adjust_cfa_offset 128
        movaps  %xmm0, 0(%rsp)
        movaps  %xmm1, 16(%rsp)
        movaps  %xmm2, 32(%rsp)
        movaps  %xmm3, 48(%rsp)
        movaps  %xmm4, 64(%rsp)
        movaps  %xmm5, 80(%rsp)
        movaps  %xmm6, 96(%rsp)
        movaps  %xmm7, 112(%rsp)
        call    od_resolve
        movq    %rax, %r11
        movaps  0(%rsp), %xmm0
        movaps  16(%rsp), %xmm1
        movaps  32(%rsp), %xmm2
        movaps  48(%rsp), %xmm3
        movaps  64(%rsp), %xmm4
        movaps  80(%rsp), %xmm5
        movaps  96(%rsp), %xmm6
        movaps  112(%rsp), %xmm7
        addq    $128, %rsp
        .cfi_adjust_cfa_offset -128
        popq    %r10
        .cfi_adjust_cfa_offset -8
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        jmp     *%r11
        .cfi_endproc
        .size   od_lazy_common, . - od_lazy_common

        .p2align 4
        .type   od_missing_common, @function
od_missing_common:
        .cfi_startproc
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    od_report_missing
        ud2
        .cfi_endproc
        .size   od_missing_common, . - od_missing_common

        .p2align 4
        .hidden od_answer
        .globl  od_answer
        .type   od_answer, @function
od_answer:
        endbr64
        movq    %rdi, %rax
        ret
        .size   od_answer, . - od_answer

        .p2align 4
        .globl  dlsym
        .type   dlsym, @function
dlsym:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        movq    16(%rsp), %rdx
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    od_before_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        movq    %rdx, %rdi
        jmp     *%rax
        .cfi_endproc
        .size   dlsym, . - dlsym

        .p2align 4
        .globl  dlopen
        .type   dlopen, @function
dlopen:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    od_before_dlopen
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlopen, . - dlopen

        .data
        .p2align 4
        .hidden od_entry
        .globl  od_entry
        .type   od_entry, @object
od_entry:
)");

#else  // aarch64

// Saved: x0-x7, x8 (address of a large result), q0-q7 and the frame pointer and return address.
asm(R"(
        .p2align 4
        .type   od_lazy_common, %function
od_lazy_common:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      od_resolve
        mov     x16, x0
        ldp     q6, q7, [sp, #192]
        ldp     q4, q5, [sp, #160]
        ldp     q2, q3, [sp, #128]
        ldp     q0, q1, [sp, #96]
        ldr     x8, [sp, #80]
        ldp     x6, x7, [sp, #64]
        ldp     x4, x5, [sp, #48]
        ldp     x2, x3, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #224
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   od_lazy_common, . - od_lazy_common

        .p2align 4
        .type   od_missing_common, %function
od_missing_common:
        stp     x29, x30, [sp, #-16]!
        bl      od_report_missing
        brk     #1
        .size   od_missing_common, . - od_missing_common

        .p2align 4
        .hidden od_answer
        .globl  od_answer
        .type   od_answer, %function
od_answer:
        hint    #34
        ret
        .size   od_answer, . - od_answer

        .p2align 4
        .globl  dlsym
        .type   dlsym, %function
dlsym:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        str     x1, [sp, #16]
        mov     x2, x30
        bl      od_before_dlsym
        mov     x16, x0
        mov     x0, x1
        ldr     x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   dlsym, . - dlsym

        .p2align 4
        .globl  dlopen
        .type   dlopen, %function
dlopen:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        bl      od_before_dlopen
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   dlopen, . - dlopen

        .data
        .p2align 4
        .hidden od_entry
        .globl  od_entry
        .type   od_entry, %object
od_entry:
)");

#endif

#define OD_ENTRY(index, name) asm("od_entry_slot " #index);
#include "loader_entries.inc"

asm(R"(
        .size   od_entry, . - od_entry
        .text
)");
// clang-format on
