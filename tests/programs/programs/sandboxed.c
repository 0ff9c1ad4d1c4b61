/* Runs a program under a filter of system calls such as a service manager sets before it starts a
   service: what services do not need is EPERM, and there are no sockets but those of the internet
   and unix (systemd's SystemCallFilter=@system-service, RestrictAddressFamilies=). Usage:
   sandboxed PROGRAM WORDS... */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define END(what) BPF_STMT(BPF_RET | BPF_K, what)
#define FORBID(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), \
    END(SECCOMP_RET_ERRNO | EPERM)
#define FAMILY(family) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, family, 0, 1), END(SECCOMP_RET_ALLOW)

int main(int count, char **words) {
    struct sock_filter filter[] = {
        LOAD(nr), FORBID(bpf), FORBID(perf_event_open), FORBID(ptrace), FORBID(process_vm_readv),
        FORBID(kcmp), FORBID(userfaultfd), FORBID(io_uring_setup), FORBID(mount), FORBID(umount2),
        FORBID(unshare), FORBID(setns), FORBID(pivot_root), FORBID(add_key), FORBID(keyctl),
        FORBID(init_module), FORBID(finit_module), FORBID(kexec_load), FORBID(open_by_handle_at),
        FORBID(pidfd_getfd), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 0, 1),
        END(SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 1, 0), END(SECCOMP_RET_ALLOW),
        LOAD(args[0]), FAMILY(AF_INET), FAMILY(AF_INET6), FAMILY(AF_UNIX),
        END(SECCOMP_RET_ERRNO | EAFNOSUPPORT),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return perror("sandboxed"), 2;
    execvp(words[1], words + 1);
    return perror(words[1]), 2;
}
