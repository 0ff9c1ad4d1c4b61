/* A program that listens on port 8080 twice: on the stack by ff_ functions and on the kernel by
 * libc's, in one set. Each message is returned with the name of the side.
 *
 *     mixed --ip 10.0.0.5/24 --if eth1
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ff_api.h"
#include "ff_epoll.h"

#define PORT 8080
#define EVENTS_MAX 64

static int epfd;
static int on_stack, in_kernel;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void on_signal(int signal)
{
    (void)signal;
    ff_stop_run();
}

static void watch(int fd)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (ff_epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) < 0)
        fail("ff_epoll_ctl");
}

static void serve(int fd)
{
    char bytes[1024];
    const char *side = ff_fdisused(fd) ? "stack: " : "kernel: ";
    /* ff_ functions accept the kernel's descriptors too. */
    ssize_t got = ff_read(fd, bytes, sizeof bytes);
    if (got <= 0) {
        ff_close(fd);
        return;
    }
    ff_write(fd, side, strlen(side));
    ff_write(fd, bytes, (size_t)got);
}

static int loop(void *arg)
{
    struct epoll_event events[EVENTS_MAX];
    int count = ff_epoll_wait(epfd, events, EVENTS_MAX, -1);
    (void)arg;
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd;
        if (fd == on_stack || fd == in_kernel) {
            int connection = ff_accept4(fd, NULL, NULL, SOCK_NONBLOCK);
            if (connection >= 0)
                watch(connection);
        } else {
            serve(fd);
        }
    }
    return 0;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in address;
    int one = 1;

    ff_init(argc, argv);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(PORT);
    address.sin_addr.s_addr = htonl(INADDR_ANY);

    on_stack = ff_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (ff_bind(on_stack, (struct linux_sockaddr *)&address, sizeof address) < 0 ||
        ff_listen(on_stack, 64) < 0)
        fail("on the stack");
    in_kernel = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(in_kernel, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(in_kernel, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(in_kernel, 64) < 0)
        fail("in the kernel");
    epfd = ff_epoll_create(0);
    watch(on_stack);
    watch(in_kernel);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    ff_run(loop, NULL);
    return 0;
}
