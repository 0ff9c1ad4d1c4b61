/* A web server in the loop of ff_run, with epoll: every request gets the same page. As on
 * other servers, one of HTTP/1.0 ends its connection, which this end closes first.
 *
 *     epoll_http --conf config.ini
 *     epoll_http --ip 10.0.0.5/24 --if eth1
 */
#include <errno.h>

#include "ff_api.h"
#include "ff_epoll.h"

#define SERVER "epoll_http"
#include "page.h"

#define EVENTS_MAX 512

static int epfd;
static int listener;

static void watch(int fd, uint32_t events)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.fd = fd;
    if (ff_epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) < 0)
        fail("ff_epoll_ctl");
}

static void accept_all(void)
{
    for (;;) {
        int on = 1;
        int fd = ff_accept(listener, NULL, NULL);
        if (fd < 0)
            return;
        ff_ioctl(fd, FIONBIO, &on);
        watch(fd, EPOLLIN);
    }
}

static void serve(int fd)
{
    char request[4096];
    ssize_t got = ff_read(fd, request, sizeof request - 1);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0 || !answer(fd, request, (size_t)got))
        ff_close(fd);
}

static int loop(void *arg)
{
    struct epoll_event events[EVENTS_MAX];
    int count = ff_epoll_wait(epfd, events, EVENTS_MAX, 0);
    (void)arg;
    for (int i = 0; i < count; i++) {
        if (events[i].data.fd == listener)
            accept_all();
        else
            serve(events[i].data.fd);
    }
    return 0;
}

int main(int argc, char *argv[])
{
    ff_init(argc, argv);
    listener = listen_on(80);
    epfd = ff_epoll_create(0);
    if (epfd < 0)
        fail("ff_epoll_create");
    watch(listener, EPOLLIN);
    run_until_a_signal(loop);
    return 0;
}
