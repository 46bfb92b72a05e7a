// Functions that hand the name of a file to the kernel, or get from it what there is to know about
// one: a program may have received the names of its files with its other parameters, and the kernel
// answers EFAULT for what lies on a guarded page.
//
// Only functions that pass a name on without having looked at it are here.
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include "wrapped.h"

namespace od::loader {
namespace {

// How long a name is is not looked at: an address that is wrong is the kernel's to complain about.
void SettleName(const void* name) {
  if (name != nullptr) SettleAt(name, PATH_MAX);
}

template <typename T>
void SettleResult(const T* result) {
  if (result != nullptr) SettleAt(result, sizeof *result);
}

bool HasMode(int flags) { return (flags & (O_CREAT | O_TMPFILE)) != 0; }

}  // namespace
}  // namespace od::loader

using namespace od::loader;

#define OD_NAME(Result, name, parameters, arguments, path) \
  OD_WRAPPED(Result, name, parameters) {                   \
    SettleName(path);                                      \
    return OD_NEXT(name) arguments;                        \
  }
#define OD_NAMES(Result, name, parameters, arguments, path, other) \
  OD_WRAPPED(Result, name, parameters) {                           \
    SettleName(path);                                              \
    SettleName(other);                                             \
    return OD_NEXT(name) arguments;                                \
  }
#define OD_ABOUT(name, parameters, arguments, path, result) \
  OD_WRAPPED(int, name, parameters) {                       \
    SettleName(path);                                       \
    SettleResult(result);                                   \
    return OD_NEXT(name) arguments;                         \
  }
// Before glibc 2.33 the C library exports no such function: each program has its own, which calls
// __xstat and its kin. What this library itself calls is found here, and answered by the kernel,
// whose structure is that of the C library on every processor with 64 bits.
#define OD_ABOUT_KERNEL(name, parameters, arguments, path, result, ...)               \
  OD_WRAPPED(int, name, parameters) {                                                 \
    SettleName(path);                                                                 \
    SettleResult(result);                                                             \
    const auto next = NextIfAny(od::loader::next_##name, od::loader::wrapped_##name); \
    return next != nullptr ? next arguments : static_cast<int>(syscall(__VA_ARGS__)); \
  }
#define OD_OPEN(name)                                                  \
  OD_WRAPPED(int, name, (const char* path, int flags, ...)) {          \
    va_list rest;                                                      \
    va_start(rest, flags);                                             \
    const unsigned mode = HasMode(flags) ? va_arg(rest, unsigned) : 0; \
    va_end(rest);                                                      \
    SettleName(path);                                                  \
    return OD_NEXT(name)(path, flags, mode);                           \
  }
#define OD_OPENAT(name)                                                   \
  OD_WRAPPED(int, name, (int folder, const char* path, int flags, ...)) { \
    va_list rest;                                                         \
    va_start(rest, flags);                                                \
    const unsigned mode = HasMode(flags) ? va_arg(rest, unsigned) : 0;    \
    va_end(rest);                                                         \
    SettleName(path);                                                     \
    return OD_NEXT(name)(folder, path, flags, mode);                      \
  }

OD_OPEN(open)
OD_OPEN(open64)
OD_OPENAT(openat)
OD_OPENAT(openat64)

// clang-format off
OD_NAME(int, __open_2, (const char* path, int flags), (path, flags), path)
OD_NAME(int, __open64_2, (const char* path, int flags), (path, flags), path)
OD_NAME(int, __openat_2, (int folder, const char* path, int flags), (folder, path, flags), path)
OD_NAME(int, __openat64_2, (int folder, const char* path, int flags), (folder, path, flags), path)
OD_NAME(int, creat, (const char* path, mode_t mode), (path, mode), path)
OD_NAME(int, creat64, (const char* path, mode_t mode), (path, mode), path)
OD_NAME(FILE*, fopen, (const char* path, const char* how), (path, how), path)
OD_NAME(FILE*, fopen64, (const char* path, const char* how), (path, how), path)
OD_NAME(FILE*, freopen, (const char* path, const char* how, FILE* file), (path, how, file), path)
OD_NAME(FILE*, freopen64, (const char* path, const char* how, FILE* file), (path, how, file), path)
OD_NAME(void*, opendir, (const char* path), (path), path)

OD_NAME(int, access, (const char* path, int how), (path, how), path)
OD_NAME(int, eaccess, (const char* path, int how), (path, how), path)
OD_NAME(int, euidaccess, (const char* path, int how), (path, how), path)
OD_NAME(int, faccessat, (int folder, const char* path, int how, int flags), (folder, path, how, flags), path)
OD_NAME(int, chdir, (const char* path), (path), path)
OD_NAME(int, chmod, (const char* path, mode_t mode), (path, mode), path)
OD_NAME(int, fchmodat, (int folder, const char* path, mode_t mode, int flags), (folder, path, mode, flags), path)
OD_NAME(int, chown, (const char* path, uid_t user, gid_t group), (path, user, group), path)
OD_NAME(int, lchown, (const char* path, uid_t user, gid_t group), (path, user, group), path)
OD_NAME(int, truncate, (const char* path, off_t bytes), (path, bytes), path)
OD_NAME(int, truncate64, (const char* path, off64_t bytes), (path, bytes), path)
OD_NAME(int, mkdir, (const char* path, mode_t mode), (path, mode), path)
OD_NAME(int, mkdirat, (int folder, const char* path, mode_t mode), (folder, path, mode), path)
OD_NAME(int, mkfifo, (const char* path, mode_t mode), (path, mode), path)
OD_NAME(int, rmdir, (const char* path), (path), path)
OD_NAME(int, unlink, (const char* path), (path), path)
OD_NAME(int, unlinkat, (int folder, const char* path, int flags), (folder, path, flags), path)
OD_NAME(int, remove, (const char* path), (path), path)
OD_NAME(int, utimes, (const char* path, const timeval* times), (path, times), path)
OD_NAME(int, utimensat, (int folder, const char* path, const timespec* times, int flags), (folder, path, times, flags), path)

OD_NAMES(int, rename, (const char* path, const char* other), (path, other), path, other)
OD_NAMES(int, renameat, (int from, const char* path, int to, const char* other), (from, path, to, other), path, other)
OD_NAMES(int, renameat2, (int from, const char* path, int to, const char* other, unsigned flags), (from, path, to, other, flags), path, other)
OD_NAMES(int, link, (const char* path, const char* other), (path, other), path, other)
OD_NAMES(int, linkat, (int from, const char* path, int to, const char* other, int flags), (from, path, to, other, flags), path, other)
OD_NAMES(int, symlink, (const char* path, const char* other), (path, other), path, other)
OD_NAMES(int, symlinkat, (const char* path, int to, const char* other), (path, to, other), path, other)

OD_ABOUT_KERNEL(stat, (const char* path, struct stat* about), (path, about), path, about, SYS_newfstatat, AT_FDCWD, path, about, 0)
OD_ABOUT_KERNEL(stat64, (const char* path, struct stat64* about), (path, about), path, about, SYS_newfstatat, AT_FDCWD, path, about, 0)
OD_ABOUT_KERNEL(lstat, (const char* path, struct stat* about), (path, about), path, about, SYS_newfstatat, AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW)
OD_ABOUT_KERNEL(lstat64, (const char* path, struct stat64* about), (path, about), path, about, SYS_newfstatat, AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW)
OD_ABOUT_KERNEL(fstat, (int file, struct stat* about), (file, about), nullptr, about, SYS_fstat, file, about)
OD_ABOUT_KERNEL(fstat64, (int file, struct stat64* about), (file, about), nullptr, about, SYS_fstat, file, about)
OD_ABOUT_KERNEL(fstatat, (int folder, const char* path, struct stat* about, int flags), (folder, path, about, flags), path, about, SYS_newfstatat, folder, path, about, flags)
OD_ABOUT_KERNEL(fstatat64, (int folder, const char* path, struct stat64* about, int flags), (folder, path, about, flags), path, about, SYS_newfstatat, folder, path, about, flags)
OD_ABOUT(statx, (int folder, const char* path, int flags, unsigned mask, struct statx* about), (folder, path, flags, mask, about), path, about)
OD_ABOUT(statfs, (const char* path, struct statfs* about), (path, about), path, about)
OD_ABOUT(statfs64, (const char* path, struct statfs64* about), (path, about), path, about)
OD_ABOUT(statvfs, (const char* path, struct statvfs* about), (path, about), path, about)
OD_ABOUT(statvfs64, (const char* path, struct statvfs64* about), (path, about), path, about)
// What older C libraries have in their place.
OD_ABOUT(__xstat, (int version, const char* path, struct stat* about), (version, path, about), path, about)
OD_ABOUT(__xstat64, (int version, const char* path, struct stat64* about), (version, path, about), path, about)
OD_ABOUT(__lxstat, (int version, const char* path, struct stat* about), (version, path, about), path, about)
OD_ABOUT(__lxstat64, (int version, const char* path, struct stat64* about), (version, path, about), path, about)
OD_ABOUT(__fxstat, (int version, int file, struct stat* about), (version, file, about), nullptr, about)
OD_ABOUT(__fxstat64, (int version, int file, struct stat64* about), (version, file, about), nullptr, about)
// clang-format on

#define OD_READLINK(name, parameters, arguments) \
  OD_WRAPPED(ssize_t, name, parameters) {        \
    SettleName(path);                            \
    SettleAt(to, n);                             \
    return OD_NEXT(name) arguments;              \
  }
OD_READLINK(readlink, (const char* path, char* to, size_t n), (path, to, n))
OD_READLINK(__readlink_chk, (const char* path, char* to, size_t n, size_t most),
            (path, to, n, most))
OD_READLINK(readlinkat, (int folder, const char* path, char* to, size_t n), (folder, path, to, n))
OD_READLINK(__readlinkat_chk, (int folder, const char* path, char* to, size_t n, size_t most),
            (folder, path, to, n, most))

// Names of sockets.
OD_WRAPPED(int, connect, (int socket, const void* name, unsigned bytes)) {
  SettleAt(name, bytes);
  return OD_NEXT(connect)(socket, name, bytes);
}
OD_WRAPPED(int, bind, (int socket, const void* name, unsigned bytes)) {
  SettleAt(name, bytes);
  return OD_NEXT(bind)(socket, name, bytes);
}
