/* libc's functions under their own names, as a program has them that asks the library whose a
 * descriptor is. */
static int is_on;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_STACKS(fd) (is_on && ff_fdisused(fd))
#define ADDRESS(at) ((struct linux_sockaddr *)(at))
#define ROUTED(type, name, parameters, ours, theirs) \
    type name parameters                             \
    {                                                \
        if (IS_STACKS(fd))                           \
            return ff_##name ours;                   \
        return REAL(name) theirs;                    \
    }

int socket(int domain, int type, int protocol)
{
    int is_inet = domain == AF_INET || domain == AF_INET6;
    if (!is_on || !is_inet || (type != SOCK_STREAM && type != SOCK_DGRAM))
        return REAL(socket)(domain, type, protocol);
    return ff_socket(domain, type, protocol);
}

ROUTED(int, accept, (int fd, struct sockaddr *at, socklen_t *len), (fd, ADDRESS(at), len),
       (fd, at, len))
ROUTED(int, bind, (int fd, const struct sockaddr *at, socklen_t len), (fd, ADDRESS(at), len),
       (fd, at, len))
ROUTED(int, connect, (int fd, const struct sockaddr *at, socklen_t len), (fd, ADDRESS(at), len),
       (fd, at, len))
ROUTED(int, listen, (int fd, int backlog), (fd, backlog), (fd, backlog))
ROUTED(int, close, (int fd), (fd), (fd))
ROUTED(int, setsockopt, (int fd, int level, int name, const void *at, socklen_t len),
       (fd, level, name, at, len), (fd, level, name, at, len))
ROUTED(ssize_t, read, (int fd, void *at, size_t len), (fd, at, len), (fd, at, len))
ROUTED(ssize_t, write, (int fd, const void *at, size_t len), (fd, at, len), (fd, at, len))
ROUTED(ssize_t, readv, (int fd, const struct iovec *at, int count), (fd, at, count),
       (fd, at, count))
ROUTED(ssize_t, writev, (int fd, const struct iovec *at, int count), (fd, at, count),
       (fd, at, count))
ROUTED(ssize_t, recv, (int fd, void *at, size_t len, int flags), (fd, at, len, flags),
       (fd, at, len, flags))
ROUTED(ssize_t, send, (int fd, const void *at, size_t len, int flags), (fd, at, len, flags),
       (fd, at, len, flags))

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *at = va_arg(rest, void *);
    va_end(rest);
    return IS_STACKS(fd) ? ff_ioctl(fd, request, at) : REAL(ioctl)(fd, request, at);
}

int fcntl(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *at = va_arg(rest, void *);
    va_end(rest);
    return IS_STACKS(fd) ? ff_fcntl(fd, command, at) : REAL(fcntl)(fd, command, at);
}
