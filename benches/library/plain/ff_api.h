/* The library's names, for a program that is to run on libc's functions: on the kernel, or
 * preloaded. Its loop waits in epoll_wait instead of ff_run. */
#ifndef PLAIN_FF_API_H
#define PLAIN_FF_API_H

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define linux_sockaddr sockaddr

#define ff_init(argc, argv) ((void)(argc), (void)(argv))
#define ff_socket socket
#define ff_setsockopt setsockopt
#define ff_bind bind
#define ff_listen listen
#define ff_connect connect
#define ff_accept accept
#define ff_ioctl ioctl
#define ff_read read
#define ff_write write
#define ff_close close
#define ff_epoll_create(size) epoll_create1(size)
#define ff_epoll_ctl epoll_ctl
#define ff_epoll_wait(set, events, most, timeout) \
    epoll_wait(set, events, most, (timeout) == 0 ? -1 : (timeout))
#define ff_stop_run() _exit(0)

static inline void ff_run(int (*loop)(void *), void *arg)
{
    for (;;)
        loop(arg);
}

#endif
