#include "engine_sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define SANDBOX_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SANDBOX_ARCH AUDIT_ARCH_AARCH64
#else
#define SANDBOX_ARCH 0
#endif

/* x86-64 kernels may take the same calls under numbers from here on; no architecture has ordinary ones there. */
#define SANDBOX_X32 0x40000000

/* Two instructions on the loaded number of the system call: equal falls into the refusal, else it is jumped over. */
#define REFUSE(call)                                                                                                   \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

enum moe_code engine_sandbox_enter(struct moe_error *err) {
  if (!SANDBOX_ARCH) return moe_fail(err, MOE_DECLINED, "sandbox: not known for this machine's architecture");
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SANDBOX_ARCH, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), /* other calling conventions: nothing */
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SANDBOX_X32, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      REFUSE(SYS_socket),
      REFUSE(SYS_connect),
      REFUSE(SYS_bind),
      REFUSE(SYS_listen),
      REFUSE(SYS_accept),
      REFUSE(SYS_accept4),
      REFUSE(SYS_execve),
      REFUSE(SYS_execveat),
      REFUSE(SYS_io_uring_setup),   /* could do the above without their calls */
      REFUSE(SYS_process_vm_readv), /* these reach into the front: same user, with sockets and exec */
      REFUSE(SYS_process_vm_writev),
      REFUSE(SYS_pidfd_getfd),
#ifndef __SANITIZE_ADDRESS__ /* its search for leaks at the end stops the process's own threads by this call */
      REFUSE(SYS_ptrace),
#endif
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
  /* TSYNC: the driver's threads too. */
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
    return moe_fail(err, MOE_DECLINED, "sandbox: %s", strerror(errno));
  return MOE_OK;
}
