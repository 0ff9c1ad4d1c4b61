/* For programs that are linked with F-Stack's adapter, libff_syscall.so: libc's socket calls go to
 * the stack, kqueue and kevent are in ff_hook_syscall.h. */
#ifndef FF_ADAPTER_H
#define FF_ADAPTER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Where a socket is to be, in the type of socket() and in the argument of epoll_create(). */
#ifndef SOCK_FSTACK
#define SOCK_FSTACK 0x01000000
#endif
#ifndef SOCK_KERNEL
#define SOCK_KERNEL 0x02000000
#endif

/* Attaches the program to the stack before its first socket does; 0, or -1 and errno. A child
 * process needs no call. */
int ff_adapter_init(void);
int ff_adapter_child_process_init(void);
/* Ends the waits for events (kevent, epoll_wait, poll, select) that are going on in other threads,
 * with -1 and EINTR, and none that begins afterwards. A signal's handler may call it. */
void alarm_event_sem(void);
/* Whether socket() with these arguments makes a socket of the stack. */
int fstack_territory(int domain, int type, int protocol);
/* Whether `fd` is a descriptor of the stack. */
int is_fstack_fd(int fd);

#ifdef __cplusplus
}
#endif

#endif
