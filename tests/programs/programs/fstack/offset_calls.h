/* libc's functions under their own names, as a program has them that tells the stack's sockets
 * by numbers from an offset on. Flags of accept4 do not reach the stack: there a connection is
 * non-blocking if its listener is. */
#include <dlfcn.h>

#define SOCK_FSTACK 0x1000

static int fd_offset, is_on;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_STACKS(fd) (is_on && (fd) >= fd_offset)
#define OWN(fd) ((fd) - fd_offset)
#define ADDRESS(at) ((struct linux_sockaddr *)(at))
/* A function whose first argument is a descriptor. */
#define ROUTED(type, name, parameters, ours, theirs) \
    type name parameters                             \
    {                                                \
        if (IS_STACKS(fd))                           \
            return ff_##name ours;                   \
        return REAL(name) theirs;                    \
    }

int socket(int domain, int type, int protocol)
{
    if (!is_on || !(type & SOCK_FSTACK))
        return REAL(socket)(domain, type, protocol);
    int fd = ff_socket(domain, type & ~SOCK_FSTACK, protocol);
    return fd == -1 ? -1 : fd + fd_offset;
}

int accept4(int fd, struct sockaddr *at, socklen_t *len, int flags)
{
    if (!IS_STACKS(fd))
        return REAL(accept4)(fd, at, len, flags);
    int accepted = ff_accept(OWN(fd), ADDRESS(at), len);
    return accepted == -1 ? -1 : accepted + fd_offset;
}

ROUTED(int, bind, (int fd, const struct sockaddr *at, socklen_t len), (OWN(fd), ADDRESS(at), len),
       (fd, at, len))
ROUTED(int, connect, (int fd, const struct sockaddr *at, socklen_t len),
       (OWN(fd), ADDRESS(at), len), (fd, at, len))
ROUTED(int, listen, (int fd, int backlog), (OWN(fd), backlog), (fd, backlog))
ROUTED(int, close, (int fd), (OWN(fd)), (fd))
ROUTED(int, shutdown, (int fd, int how), (OWN(fd), how), (fd, how))
ROUTED(int, getpeername, (int fd, struct sockaddr *at, socklen_t *len), (OWN(fd), ADDRESS(at), len),
       (fd, at, len))
ROUTED(int, getsockname, (int fd, struct sockaddr *at, socklen_t *len), (OWN(fd), ADDRESS(at), len),
       (fd, at, len))
ROUTED(int, getsockopt, (int fd, int level, int name, void *at, socklen_t *len),
       (OWN(fd), level, name, at, len), (fd, level, name, at, len))
ROUTED(int, setsockopt, (int fd, int level, int name, const void *at, socklen_t len),
       (OWN(fd), level, name, at, len), (fd, level, name, at, len))
ROUTED(ssize_t, read, (int fd, void *at, size_t len), (OWN(fd), at, len), (fd, at, len))
ROUTED(ssize_t, write, (int fd, const void *at, size_t len), (OWN(fd), at, len), (fd, at, len))
ROUTED(ssize_t, readv, (int fd, const struct iovec *at, int count), (OWN(fd), at, count),
       (fd, at, count))
ROUTED(ssize_t, writev, (int fd, const struct iovec *at, int count), (OWN(fd), at, count),
       (fd, at, count))
ROUTED(ssize_t, recv, (int fd, void *at, size_t len, int flags), (OWN(fd), at, len, flags),
       (fd, at, len, flags))
ROUTED(ssize_t, send, (int fd, const void *at, size_t len, int flags), (OWN(fd), at, len, flags),
       (fd, at, len, flags))
ROUTED(ssize_t, sendmsg, (int fd, const struct msghdr *at, int flags), (OWN(fd), at, flags),
       (fd, at, flags))
ROUTED(ssize_t, recvmsg, (int fd, struct msghdr *at, int flags), (OWN(fd), at, flags),
       (fd, at, flags))

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *at = va_arg(rest, void *);
    va_end(rest);
    if (IS_STACKS(fd))
        return ff_ioctl(OWN(fd), request, at);
    return REAL(ioctl)(fd, request, at);
}

int gettimeofday(struct timeval *now, void *zone)
{
    return is_on ? ff_gettimeofday(now, zone) : REAL(gettimeofday)(now, zone);
}

static int kqueue(void)
{
    return ff_kqueue();
}

static int kevent(int queue, struct kevent *list, int count, struct kevent *due, int most,
                  const struct timespec *wait)
{
    for (int i = 0; i < count; i++)
        if ((list[i].filter == EVFILT_READ || list[i].filter == EVFILT_WRITE) &&
            (int)list[i].ident >= fd_offset)
            list[i].ident -= (uintptr_t)fd_offset;
    return ff_kevent(queue, list, count, due, most, wait);
}
