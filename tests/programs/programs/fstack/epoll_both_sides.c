/* Written for F-Stack's adapter: one port twice, on the stack and on the kernel, in one epoll
 * set. */
#include "threads.h"

int main(void)
{
    struct epoll_event event, events[64];
    int on_stack = listening(SOCK_FSTACK), on_kernel = listening(SOCK_KERNEL),
        set = epoll_create(0 | SOCK_FSTACK);
    if (set < 0)
        fail("epoll_create");
    event.events = EPOLLIN;
    event.data.fd = on_stack;
    epoll_ctl(set, EPOLL_CTL_ADD, on_stack, &event);
    event.data.fd = on_kernel;
    epoll_ctl(set, EPOLL_CTL_ADD, on_kernel, &event);
    for (;;) {
        int count = epoll_wait(set, events, 64, -1);
        for (int i = 0; i < count; ++i) {
            int fd = events[i].data.fd;
            if (fd != on_stack && fd != on_kernel) {
                serve(fd);
                continue;
            }
            int connection = accept(fd, NULL, NULL);
            printf("%s\n", fd == on_stack ? "stack" : "kernel");
            fflush(stdout);
            event.events = EPOLLIN;
            event.data.fd = connection;
            epoll_ctl(set, EPOLL_CTL_ADD, connection, &event);
        }
    }
}
