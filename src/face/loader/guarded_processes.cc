// Functions that start another program: what they name may lie in guarded memory, which the kernel
// cannot wait for, and a child that shares our memory has the signal blocked by which we would.
//
// All of them wait for everything that is under way. fork() is in fork.cc. A child made by vfork()
// runs on the stack of whoever has called it, so there is nothing of ours on it: the entry is
// machine code that leaves by a jump.
#include <dlfcn.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wrapped.h"

namespace od::loader {
namespace {

void SettleEverything() {
  if (memory::guard::is_active()) memory::guard::guards.settle_all();
}

// How many strings there are up to the null pointer, with it.
size_t CountWords(va_list words) {
  size_t count = 1;
  while (va_arg(words, char*) != nullptr) ++count;
  return count;
}

void CopyWords(char** to, size_t count, const char* first, va_list words) {
  to[0] = const_cast<char*>(first);
  for (size_t i = 1; i < count; ++i) to[i] = va_arg(words, char*);
}

}  // namespace
}  // namespace od::loader

using od::loader::SettleEverything;

OD_WRAPPED(int, posix_spawn,
           (pid_t * child, const char* path, const posix_spawn_file_actions_t* actions,
            const posix_spawnattr_t* attributes, char* const words[], char* const variables[])) {
  SettleEverything();
  return OD_NEXT(posix_spawn)(child, path, actions, attributes, words, variables);
}
OD_WRAPPED(int, posix_spawnp,
           (pid_t * child, const char* file, const posix_spawn_file_actions_t* actions,
            const posix_spawnattr_t* attributes, char* const words[], char* const variables[])) {
  SettleEverything();
  return OD_NEXT(posix_spawnp)(child, file, actions, attributes, words, variables);
}
OD_WRAPPED(int, system, (const char* command)) {
  SettleEverything();
  return OD_NEXT(system)(command);
}
OD_WRAPPED(FILE*, popen, (const char* command, const char* mode)) {
  SettleEverything();
  return OD_NEXT(popen)(command, mode);
}

OD_WRAPPED(int, execve, (const char* path, char* const words[], char* const variables[])) {
  SettleEverything();
  return OD_NEXT(execve)(path, words, variables);
}
OD_WRAPPED(int, fexecve, (int file, char* const words[], char* const variables[])) {
  SettleEverything();
  return OD_NEXT(fexecve)(file, words, variables);
}
OD_WRAPPED(int, execv, (const char* path, char* const words[])) {
  SettleEverything();
  return OD_NEXT(execv)(path, words);
}
OD_WRAPPED(int, execvp, (const char* file, char* const words[])) {
  SettleEverything();
  return OD_NEXT(execvp)(file, words);
}
OD_WRAPPED(int, execvpe, (const char* file, char* const words[], char* const variables[])) {
  SettleEverything();
  return OD_NEXT(execvpe)(file, words, variables);
}

// With the words as arguments: passed on as lists, which is what the C library makes of them.
#define OD_EXEC_LIST(name, with_list)                                                 \
  extern "C" __attribute__((visibility("default"))) int od_wrapped_##name(            \
      const char* path, const char* first, ...) __asm__(#name);                       \
  int od_wrapped_##name(const char* path, const char* first, ...) {                   \
    va_list words;                                                                    \
    va_start(words, first);                                                           \
    const size_t count = first == nullptr ? 1 : od::loader::CountWords(words) + 1;    \
    va_end(words);                                                                    \
    auto** const list = static_cast<char**>(__builtin_alloca(count * sizeof(char*))); \
    va_start(words, first);                                                           \
    od::loader::CopyWords(list, count, first, words);                                 \
    va_end(words);                                                                    \
    SettleEverything();                                                               \
    return OD_NEXT(with_list)(path, list);                                            \
  }
OD_EXEC_LIST(execl, execv)
OD_EXEC_LIST(execlp, execvp)
extern "C" __attribute__((visibility("default"))) int od_wrapped_execle(const char* path,
                                                                        const char* first,
                                                                        ...) __asm__("execle");
int od_wrapped_execle(const char* path, const char* first, ...) {
  va_list words;
  va_start(words, first);
  const size_t count = first == nullptr ? 1 : od::loader::CountWords(words) + 1;
  va_end(words);
  auto** const list = static_cast<char**>(__builtin_alloca(count * sizeof(char*)));
  va_start(words, first);
  od::loader::CopyWords(list, count, first, words);
  char* const* const variables = va_arg(words, char* const*);
  va_end(words);
  SettleEverything();
  return OD_NEXT(execve)(path, list, variables);
}

// --- vfork

OD_WRAPPED_NEXT(pid_t, vfork, ())

extern "C" __attribute__((visibility("hidden"), used)) void* od_before_vfork() {
  SettleEverything();
  return reinterpret_cast<void*>(OD_NEXT(vfork));
}

// clang-format off
#if defined(__x86_64__)
asm(R"(
        .text
        .p2align 4
        .globl  vfork
        .type   vfork, @function
vfork:
        .cfi_startproc
        endbr64
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    od_before_vfork
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   vfork, . - vfork
)");
#elif defined(__aarch64__)
asm(R"(
        .text
        .p2align 4
        .globl  vfork
        .type   vfork, %function
vfork:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset 30, -8
        bl      od_before_vfork
        ldp     x29, x30, [sp], #16
        .cfi_def_cfa_offset 0
        mov     x16, x0
        br      x16
        .cfi_endproc
        .size   vfork, . - vfork
)");
#endif
// clang-format on
