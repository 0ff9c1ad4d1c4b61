/* Sockets of Slipstack's stack, by the names of F-Stack's interface. Functions are as their POSIX
 * namesakes unless a comment says more; errors are -1 and Linux's errno. */
#ifndef FF_API_H
#define FF_API_H

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "ff_errno.h"
#include "ff_event.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An address, to be cast from sockaddr_in or sockaddr_in6; its length is an argument of its own. */
struct linux_sockaddr {
    short sa_family;
    char sa_data[14];
};

#define AF_INET6_LINUX 10
#define PF_INET6_LINUX AF_INET6_LINUX
#define AF_INET6_FREEBSD 28
#define PF_INET6_FREEBSD AF_INET6_FREEBSD

typedef int (*loop_func_t)(void *arg);

/* Reads --conf/-c FILE (config.ini), --proc-type/-t, --proc-id/-p and the options of `slipstack
 * run`, and has a stack for this process. Returns 0; a failure ends the process with status 1. */
int ff_init(int argc, char *const argv[]);
/* Calls `loop` whenever there is work and once a millisecond otherwise, until ff_stop_run. */
void ff_run(loop_func_t loop, void *arg);
void ff_stop_run(void);

int ff_socket(int domain, int type, int protocol);
int ff_bind(int s, const struct linux_sockaddr *addr, socklen_t addrlen);
int ff_connect(int s, const struct linux_sockaddr *name, socklen_t namelen);
int ff_listen(int s, int backlog);
int ff_accept(int s, struct linux_sockaddr *addr, socklen_t *addrlen);
int ff_accept4(int s, struct linux_sockaddr *addr, socklen_t *addrlen, int flags);
int ff_close(int fd);
int ff_shutdown(int s, int how);
int ff_getpeername(int s, struct linux_sockaddr *name, socklen_t *namelen);
int ff_getsockname(int s, struct linux_sockaddr *name, socklen_t *namelen);
/* Linux's numbers; at IPPROTO_IP also FreeBSD's IP_RECVDSTADDR (7) and IP_DONTFRAG (67). */
int ff_getsockopt(int s, int level, int optname, void *optval, socklen_t *optlen);
int ff_setsockopt(int s, int level, int optname, const void *optval, socklen_t optlen);
int ff_socketpair(int domain, int type, int protocol, int sv[2]);

int ff_ioctl(int fd, unsigned long request, ...);
int ff_fcntl(int fd, int cmd, ...);

ssize_t ff_read(int fd, void *buf, size_t nbytes);
ssize_t ff_readv(int fd, const struct iovec *iov, int iovcnt);
ssize_t ff_write(int fd, const void *buf, size_t nbytes);
ssize_t ff_writev(int fd, const struct iovec *iov, int iovcnt);
ssize_t ff_send(int s, const void *buf, size_t len, int flags);
ssize_t ff_sendto(int s, const void *buf, size_t len, int flags, const struct linux_sockaddr *to,
                  socklen_t tolen);
ssize_t ff_sendmsg(int s, const struct msghdr *msg, int flags);
ssize_t ff_recv(int s, void *buf, size_t len, int flags);
ssize_t ff_recvfrom(int s, void *buf, size_t len, int flags, struct linux_sockaddr *from,
                    socklen_t *fromlen);
ssize_t ff_recvmsg(int s, struct msghdr *msg, int flags);

int ff_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
              struct timeval *timeout);
int ff_poll(struct pollfd fds[], nfds_t nfds, int timeout);

int ff_dup(int oldfd);
int ff_dup2(int oldfd, int newfd);

/* Whether `fd` is a descriptor of the stack; the limit of descriptor numbers. */
int ff_fdisused(int fd);
int ff_getmaxfd(void);

#ifdef __cplusplus
}
#endif

#endif
