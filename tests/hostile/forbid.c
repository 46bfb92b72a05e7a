// Starts a program in which chosen system calls fail, as a container's seccomp profile makes them:
//   forbid [NAME=ERRNO]... -- PROGRAM ARGUMENTS...
// NAME is one of ptrace, process_vm_readv, process_vm_writev, pidfd_open, pidfd_getfd,
// memfd_create,
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kMostInstructions = 200 };

static struct sock_filter program[kMostInstructions];
static unsigned short length;

static void add(uint16_t code, uint32_t value, uint8_t when_true, uint8_t when_false) {
  if (length == kMostInstructions) {
    fprintf(stderr, "forbid: too many rules\n");
    exit(2);
  }
  program[length++] = (struct sock_filter){code, when_true, when_false, value};
}

static void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }

static void refuse(uint32_t number, uint32_t error) {
  add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
  add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
}

typedef struct {
  const char* name;
  long number;
} Name;

static const Name kCalls[] = {
    {"ptrace", SYS_ptrace},
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"pidfd_open", SYS_pidfd_open},
    {"pidfd_getfd", SYS_pidfd_getfd},
    {"memfd_create", SYS_memfd_create},
    {"membarrier", SYS_membarrier},
    {"kcmp", SYS_kcmp},
    {"userfaultfd", SYS_userfaultfd},
};

static uint32_t error_number(const char* text) {
  if (strcmp(text, "EPERM") == 0) return EPERM;
  if (strcmp(text, "ENOSYS") == 0) return ENOSYS;
  if (strcmp(text, "EACCES") == 0) return EACCES;
  fprintf(stderr, "forbid: unknown error %s\n", text);
  exit(2);
}

static void rule(const char* text) {
  const char* equals = strchr(text, '=');
  if (equals == NULL) {
    fprintf(stderr, "forbid: %s has no error number\n", text);
    exit(2);
  }
  const size_t name_length = (size_t)(equals - text);
  const uint32_t error = error_number(equals + 1);
  if (name_length == 11 && strncmp(text, "socket_unix", 11) == 0) {
    // socket(AF_UNIX, ...) only: launchers need the network.
    add(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4);
    load(offsetof(struct seccomp_data, args[0]));
    add(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
    load(offsetof(struct seccomp_data, nr));
    add(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
    return;
  }
  for (size_t i = 0; i < sizeof kCalls / sizeof kCalls[0]; i++) {
    if (strlen(kCalls[i].name) == name_length && strncmp(text, kCalls[i].name, name_length) == 0) {
      refuse((uint32_t)kCalls[i].number, error);
      return;
    }
  }
  fprintf(stderr, "forbid: unknown call in %s\n", text);
  exit(2);
}

int main(int argc, char** argv) {
  int at = 1;
  load(offsetof(struct seccomp_data, nr));
  for (; at < argc && strcmp(argv[at], "--") != 0; at++) rule(argv[at]);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  if (at + 1 >= argc) {
    fprintf(stderr, "usage: forbid NAME=ERRNO... -- PROGRAM ARGUMENTS...\n");
    return 2;
  }
  struct sock_fprog filter = {length, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    perror("forbid: seccomp");
    return 3;
  }
  execvp(argv[at + 1], argv + at + 1);
  perror(argv[at + 1]);
  return 127;
}
