/* epoll for sockets of the stack and descriptors of the kernel, in one set. */
#ifndef FF_EPOLL_H
#define FF_EPOLL_H

#include <sys/epoll.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The size is not looked at; 0 is as good as any. */
int ff_epoll_create(int size);
int ff_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
/* Waits as epoll_wait does; inside the loop of ff_run for a millisecond at most. */
int ff_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

#ifdef __cplusplus
}
#endif

#endif
