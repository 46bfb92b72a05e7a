// System calls and functions by which a program hands its memory to the kernel: the kernel answers
// EFAULT for a guarded page where the program itself would wait.
//
// Each waits first for what overlaps its memory, if anything is guarded at all. The C library calls
// the kernel by itself inside of stdio: fread and fwrite have wrappers of their own. Functions that
// copy in the program, such as fgets or those that first ask for the length of a string, need none.
// The checking variants are what compilers make of calls with -D_FORTIFY_SOURCE.
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "process.h"
#include "wrapped.h"

struct aiocb;

extern "C" {
#pragma GCC visibility push(hidden)
extern od::loader::Wrapped __start_od_wrapped[];
extern od::loader::Wrapped __stop_od_wrapped[];
#pragma GCC visibility pop
}

namespace od::loader {

void FindWrapped(const Wrapped& wrapped) {
  const int saved_errno = errno;
  void* const found = RealDlsym()(RTLD_NEXT, wrapped.name);
  // Relaxed: whoever computes it finds the same.
  __atomic_store_n(wrapped.next, found, __ATOMIC_RELAXED);
  errno = saved_errno;
}

bool all_found = false;

namespace {

__attribute__((constructor)) void FindAllWrapped() {
  for (Wrapped* each = __start_od_wrapped; each < __stop_od_wrapped; ++each) FindWrapped(*each);
  dlerror();  // an older C library does not have all of them
  all_found = true;
}

// The vector itself is read here, and so waited for where it is guarded.
void SettleVector(const iovec* vector, int64_t count) {
  if (!memory::guard::is_active() || vector == nullptr) return;
  for (int64_t i = 0; i < count; ++i) SettleAt(vector[i].iov_base, vector[i].iov_len);
}

void SettleMessage(const msghdr* message) {
  if (!memory::guard::is_active() || message == nullptr) return;
  SettleVector(message->msg_iov, static_cast<int64_t>(message->msg_iovlen));
  SettleAt(message->msg_control, message->msg_controllen);
  SettleAt(message->msg_name, message->msg_namelen);
}

void SettleMessages(const mmsghdr* messages, unsigned count) {
  if (!memory::guard::is_active() || messages == nullptr) return;
  for (unsigned i = 0; i < count; ++i) SettleMessage(&messages[i].msg_hdr);
}

void SettleItems(const void* start, size_t bytes, size_t count) {
  size_t total;
  if (__builtin_mul_overflow(bytes, count, &total)) total = SIZE_MAX;
  SettleAt(start, total);
}

// What is handed over in a structure that is not looked into.
void SettleAll() {
  if (memory::guard::is_active()) memory::guard::guards.settle_all();
}

}  // namespace
}  // namespace od::loader

using namespace od::loader;

#define OD_BUFFER(Result, name, parameters, arguments, buffer, bytes) \
  OD_WRAPPED(Result, name, parameters) {                              \
    SettleAt(buffer, bytes);                                          \
    return OD_NEXT(name) arguments;                                   \
  }
#define OD_VECTOR(Result, name, parameters, arguments, vector, count) \
  OD_WRAPPED(Result, name, parameters) {                              \
    SettleVector(vector, static_cast<int64_t>(count));                \
    return OD_NEXT(name) arguments;                                   \
  }

// clang-format off
OD_BUFFER(ssize_t, read, (int fd, void* to, size_t n), (fd, to, n), to, n)
OD_BUFFER(ssize_t, write, (int fd, const void* from, size_t n), (fd, from, n), from, n)
OD_BUFFER(ssize_t, pread, (int fd, void* to, size_t n, off_t at), (fd, to, n, at), to, n)
OD_BUFFER(ssize_t, pread64, (int fd, void* to, size_t n, off64_t at), (fd, to, n, at), to, n)
OD_BUFFER(ssize_t, pwrite, (int fd, const void* from, size_t n, off_t at), (fd, from, n, at), from, n)
OD_BUFFER(ssize_t, pwrite64, (int fd, const void* from, size_t n, off64_t at), (fd, from, n, at), from, n)
OD_BUFFER(ssize_t, __read_chk, (int fd, void* to, size_t n, size_t most), (fd, to, n, most), to, n)
OD_BUFFER(ssize_t, __pread_chk, (int fd, void* to, size_t n, off_t at, size_t most), (fd, to, n, at, most), to, n)
OD_BUFFER(ssize_t, __pread64_chk, (int fd, void* to, size_t n, off64_t at, size_t most), (fd, to, n, at, most), to, n)

OD_VECTOR(ssize_t, readv, (int fd, const iovec* v, int n), (fd, v, n), v, n)
OD_VECTOR(ssize_t, writev, (int fd, const iovec* v, int n), (fd, v, n), v, n)
OD_VECTOR(ssize_t, preadv, (int fd, const iovec* v, int n, off_t at), (fd, v, n, at), v, n)
OD_VECTOR(ssize_t, preadv64, (int fd, const iovec* v, int n, off64_t at), (fd, v, n, at), v, n)
OD_VECTOR(ssize_t, pwritev, (int fd, const iovec* v, int n, off_t at), (fd, v, n, at), v, n)
OD_VECTOR(ssize_t, pwritev64, (int fd, const iovec* v, int n, off64_t at), (fd, v, n, at), v, n)
OD_VECTOR(ssize_t, preadv2, (int fd, const iovec* v, int n, off_t at, int how), (fd, v, n, at, how), v, n)
OD_VECTOR(ssize_t, preadv64v2, (int fd, const iovec* v, int n, off64_t at, int how), (fd, v, n, at, how), v, n)
OD_VECTOR(ssize_t, pwritev2, (int fd, const iovec* v, int n, off_t at, int how), (fd, v, n, at, how), v, n)
OD_VECTOR(ssize_t, pwritev64v2, (int fd, const iovec* v, int n, off64_t at, int how), (fd, v, n, at, how), v, n)
OD_VECTOR(ssize_t, vmsplice, (int fd, const iovec* v, size_t n, unsigned how), (fd, v, n, how), v, n)
OD_VECTOR(ssize_t, process_vm_readv, (pid_t who, const iovec* v, unsigned long n, const iovec* theirs, unsigned long m, unsigned long how), (who, v, n, theirs, m, how), v, n)
OD_VECTOR(ssize_t, process_vm_writev, (pid_t who, const iovec* v, unsigned long n, const iovec* theirs, unsigned long m, unsigned long how), (who, v, n, theirs, m, how), v, n)

OD_BUFFER(ssize_t, recv, (int fd, void* to, size_t n, int how), (fd, to, n, how), to, n)
OD_BUFFER(ssize_t, recvfrom, (int fd, void* to, size_t n, int how, void* who, void* length), (fd, to, n, how, who, length), to, n)
OD_BUFFER(ssize_t, __recv_chk, (int fd, void* to, size_t n, size_t most, int how), (fd, to, n, most, how), to, n)
OD_BUFFER(ssize_t, __recvfrom_chk, (int fd, void* to, size_t n, size_t most, int how, void* who, void* length), (fd, to, n, most, how, who, length), to, n)
OD_BUFFER(ssize_t, send, (int fd, const void* from, size_t n, int how), (fd, from, n, how), from, n)
OD_BUFFER(ssize_t, sendto, (int fd, const void* from, size_t n, int how, const void* who, unsigned length), (fd, from, n, how, who, length), from, n)

OD_BUFFER(ssize_t, getrandom, (void* to, size_t n, unsigned how), (to, n, how), to, n)
OD_BUFFER(int, getentropy, (void* to, size_t n), (to, n), to, n)
OD_BUFFER(int, mlock, (const void* start, size_t n), (start, n), start, n)
OD_BUFFER(int, mlock2, (const void* start, size_t n, unsigned how), (start, n, how), start, n)
OD_BUFFER(int, msgsnd, (int queue, const void* from, size_t n, int how), (queue, from, n, how), from, n + sizeof(long))
OD_BUFFER(ssize_t, msgrcv, (int queue, void* to, size_t n, long type, int how), (queue, to, n, type, how), to, n + sizeof(long))
// clang-format on

OD_WRAPPED(ssize_t, recvmsg, (int fd, msghdr* message, int how)) {
  SettleMessage(message);
  return OD_NEXT(recvmsg)(fd, message, how);
}
OD_WRAPPED(ssize_t, sendmsg, (int fd, const msghdr* message, int how)) {
  SettleMessage(message);
  return OD_NEXT(sendmsg)(fd, message, how);
}
OD_WRAPPED(int, recvmmsg, (int fd, mmsghdr* messages, unsigned n, int how, timespec* limit)) {
  SettleMessages(messages, n);
  return OD_NEXT(recvmmsg)(fd, messages, n, how, limit);
}
OD_WRAPPED(int, sendmmsg, (int fd, mmsghdr* messages, unsigned n, int how)) {
  SettleMessages(messages, n);
  return OD_NEXT(sendmmsg)(fd, messages, n, how);
}

OD_WRAPPED(size_t, fread, (void* to, size_t bytes, size_t n, FILE* file)) {
  SettleItems(to, bytes, n);
  return OD_NEXT(fread)(to, bytes, n, file);
}
OD_WRAPPED(size_t, fread_unlocked, (void* to, size_t bytes, size_t n, FILE* file)) {
  SettleItems(to, bytes, n);
  return OD_NEXT(fread_unlocked)(to, bytes, n, file);
}
OD_WRAPPED(size_t, __fread_chk, (void* to, size_t most, size_t bytes, size_t n, FILE* file)) {
  SettleItems(to, bytes, n);
  return OD_NEXT(__fread_chk)(to, most, bytes, n, file);
}
OD_WRAPPED(size_t, __fread_unlocked_chk,
           (void* to, size_t most, size_t bytes, size_t n, FILE* file)) {
  SettleItems(to, bytes, n);
  return OD_NEXT(__fread_unlocked_chk)(to, most, bytes, n, file);
}
OD_WRAPPED(size_t, fwrite, (const void* from, size_t bytes, size_t n, FILE* file)) {
  SettleItems(from, bytes, n);
  return OD_NEXT(fwrite)(from, bytes, n, file);
}
OD_WRAPPED(size_t, fwrite_unlocked, (const void* from, size_t bytes, size_t n, FILE* file)) {
  SettleItems(from, bytes, n);
  return OD_NEXT(fwrite_unlocked)(from, bytes, n, file);
}

// Started by a thread of the C library, which does not come by here.
#define OD_AIO(name)                       \
  OD_WRAPPED(int, name, (aiocb * block)) { \
    SettleAll();                           \
    return OD_NEXT(name)(block);           \
  }
OD_AIO(aio_read)
OD_AIO(aio_read64)
OD_AIO(aio_write)
OD_AIO(aio_write64)
#define OD_LIO(name)                                                            \
  OD_WRAPPED(int, name, (int how, aiocb* const* blocks, int n, void* signal)) { \
    SettleAll();                                                                \
    return OD_NEXT(name)(how, blocks, n, signal);                               \
  }
OD_LIO(lio_listio)
OD_LIO(lio_listio64)
