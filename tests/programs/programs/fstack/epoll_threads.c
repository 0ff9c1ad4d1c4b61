/* Written for F-Stack's adapter: each thread has its socket and its epoll set, both asked for with
 * SOCK_FSTACK. */
#include "threads.h"

static void *work(void *arg)
{
    struct epoll_event event, events[64];
    int listener = listening(SOCK_FSTACK), set = epoll_create(512 | SOCK_FSTACK);
    if (set < 0)
        fail("epoll_create");
    event.data.fd = listener;
    event.events = EPOLLIN;
    if (epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) < 0)
        fail("epoll_ctl");
    for (;;) {
        int count = epoll_wait(set, events, 64, 100);
        for (int i = 0; i < count; ++i) {
            int fd = events[i].data.fd;
            if (fd != listener) {
                serve(fd);
                continue;
            }
            for (int connection; (connection = accept(listener, NULL, NULL)) >= 0;) {
                event.data.fd = connection;
                event.events = EPOLLIN;
                epoll_ctl(set, EPOLL_CTL_ADD, connection, &event);
            }
        }
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i)
        pthread_create(&threads[i], NULL, work, NULL);
    pthread_join(threads[0], NULL);
    return 0;
}
