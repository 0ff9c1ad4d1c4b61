/* Sockets of Slipstack's stack, by the names of F-Stack's interface. Functions are as their POSIX
 * namesakes unless a comment says more; errors are -1 and Linux's errno. */
#ifndef FF_API_H
#define FF_API_H

#include <netinet/in.h>
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

/* Where a socket is to be, in the type of ff_socket() and in the argument of ff_epoll_create().
 * Only for programs that ask for them, as in F-Stack: its nginx has a SOCK_FSTACK of its own. */
#ifdef FF_KERNEL_COEXIST
#ifndef SOCK_FSTACK
#define SOCK_FSTACK 0x01000000
#endif
#ifndef SOCK_KERNEL
#define SOCK_KERNEL 0x02000000
#endif
#endif

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

/* kevent waits as long as `timeout` says, NULL for ever; inside the loop of ff_run for a
 * millisecond at most. ff_kevent_do_each calls `do_each` for each event with a cursor that
 * begins at `eventlist`. */
int ff_kqueue(void);
int ff_kevent(int kq, const struct kevent *changelist, int nchanges, struct kevent *eventlist,
              int nevents, const struct timespec *timeout);
int ff_kevent_do_each(int kq, const struct kevent *changelist, int nchanges, void *eventlist,
                      int nevents, const struct timespec *timeout,
                      void (*do_each)(void **, struct kevent *));

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

/* Threads are libc's; any thread may use any socket. */
int ff_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                      void *arg);
int ff_pthread_join(pthread_t thread, void **retval);
int ff_gettimeofday(struct timeval *tv, void *tz);

/* Changes the routes of the running stack, for every engine of its device; 0, or -1 and errno. */
enum FF_ROUTE_CTL {
    FF_ROUTE_ADD,
    FF_ROUTE_DEL,
    FF_ROUTE_CHANGE
};
enum FF_ROUTE_FLAG {
    FF_RTF_HOST,
    FF_RTF_GATEWAY
};
int ff_route_ctl(enum FF_ROUTE_CTL req, enum FF_ROUTE_FLAG flag, struct linux_sockaddr *dst,
                 struct linux_sockaddr *gw, struct linux_sockaddr *netmask);

/* Sees each frame before the stack does, on the thread of ff_run: `data` is the Ethernet header.
 * Results: the number of a queue (its own: the frame goes on into the stack), or one of the two
 * below. There is room for 2048 bytes behind the frame. In-process placement only. */
#define FF_DISPATCH_ERROR (-1)
#define FF_DISPATCH_RESPONSE (-2)
struct ff_dispatcher_context {
    struct {
        uint8_t stripped;
        uint16_t vlan_tci;
    } vlan;
};
typedef int (*dispatch_func_t)(void *data, uint16_t *len, uint16_t queue_id, uint16_t nb_queues);
typedef int (*dispatch_func_context_t)(void *data, uint16_t *len, uint16_t queue_id,
                                       uint16_t nb_queues, struct ff_dispatcher_context context);
/* NULL removes it; the plain one goes before the other. */
void ff_regist_packet_dispatcher(dispatch_func_t func);
void ff_regist_packet_dispatcher_context(dispatch_func_context_t func);
/* Sends a copy of a whole frame; of several interfaces by the one of this number, from 0. */
int ff_dpdk_raw_packet_send(void *data, int total, uint16_t port_id);
/* Chooses the source address of connections from unbound sockets, by writing it to `src`. */
typedef int (*pcblddr_func_t)(uint16_t family, void *dst_addr, uint16_t dst_port, void *src_addr);
void ff_regist_pcblddr_fun(pcblddr_func_t func);
/* Six 64-bit numbers: packets received, bytes received, packets sent, bytes sent, received and
 * sent ones dropped. */
void ff_get_traffic(void *buffer);

/* FreeBSD's MIB: the names of `slipstack sysctl` and the machine's; {0, 3} gives the numbers of
 * a name. */
int ff_sysctl(const int *name, unsigned int namelen, void *oldp, size_t *oldlenp, const void *newp,
              size_t newlen);

/* A buffer in the stack's send memory, to be filled, in as many calls as it takes, and handed over:
 * ff_write(fd, m.bsd_mbuf, n). The device gathers from it. */
struct ff_zc_mbuf {
    void *bsd_mbuf;
    void *bsd_mbuf_off;
    int off;
    int len;
};
/* 0, or -1. */
int ff_zc_mbuf_get(struct ff_zc_mbuf *m, int len);
/* Appends `len` bytes, and returns `len`; -1 if they are too many. */
int ff_zc_mbuf_write(struct ff_zc_mbuf *m, const char *data, int len);
/* As ff_write(fd, mb, n), but the buffer is gone afterwards, also after -1. */
ssize_t ff_zc_send(int fd, const void *mb, size_t nbytes);

/* Receiving without a copy: up to `nbytes` that wait, where they lie. They stay as they are while
 * more comes, until ff_zc_recv_free, in any order, or the connection is closed. Returns how many; 0
 * at the end of the stream; -1. Their room in the receive buffer is not used meanwhile: a
 * connection of which all is kept stops, alone. */
ssize_t ff_zc_recv(int fd, struct ff_zc_mbuf *m, size_t nbytes);
/* The next stretch of them: how long it is; 0 at their end; -1. */
int ff_zc_mbuf_segment(struct ff_zc_mbuf *m, void **seg_data, int *seg_len);
/* Copies the next `len` of them to `data`, which is written although it is declared constant.
 * Returns how many; -1. */
int ff_zc_mbuf_read(struct ff_zc_mbuf *m, const char *data, int len);
void ff_zc_recv_free(struct ff_zc_mbuf *m);

/* By FreeBSD's numbers. */
int ff_ioctl_freebsd(int fd, unsigned long request, ...);
int ff_setsockopt_freebsd(int s, int level, int optname, const void *optval, socklen_t optlen);
int ff_getsockopt_freebsd(int s, int level, int optname, void *optval, socklen_t *optlen);
/* There is no routing socket and there are no netgraph nodes: EOPNOTSUPP. */
int ff_rtioctl(int fib, void *data, unsigned *plen, unsigned maxlen);
enum FF_NGCTL_CMD {
    NGCTL_SOCKET,
    NGCTL_BIND,
    NGCTL_CONNECT,
    NGCTL_SEND,
    NGCTL_RECV,
    NGCTL_CLOSE
};
int ff_ngctl(int cmd, void *data);

/* Threads need no structure of their own here. */
void *ff_adapt_user_thread_add(void *parent);
void ff_adapt_user_thread_exit(void *thread);
void *ff_switch_curthread(void *thread);
void ff_restore_curthread(void *thread);

/* Whether `fd` is a descriptor of the stack; the limit of descriptor numbers. */
int ff_fdisused(int fd);
int ff_getmaxfd(void);
/* Which of the processes of one configuration this is, and how many there are: each has the queue
 * of its number. The size of the card's table is 0, because there is none. */
int ff_rss_self_queue_info(uint16_t *proc_id, uint16_t *queueid, uint16_t *nb_queues,
                           uint16_t *reta_size);

#ifdef __cplusplus
}
#endif

#endif
