/* A web server in the loop of ff_run, with kqueue: every request gets the same page. As on
 * other servers, one of HTTP/1.0 ends its connection, which this end closes first.
 *
 *     kqueue_http --conf config.ini
 *     kqueue_http --ip 10.0.0.5/24 --if eth1
 */
#include "ff_api.h"

#define SERVER "kqueue_http"
#include "page.h"

#define EVENTS_MAX 512

static int kq;
static int listener;

static void watch(int fd)
{
    struct kevent change;
    EV_SET(&change, fd, EVFILT_READ, EV_ADD, 0, 0, NULL);
    if (ff_kevent(kq, &change, 1, NULL, 0, NULL) < 0)
        fail("ff_kevent");
}

/* data is the number of connections that can be accepted. */
static void accept_all(int64_t waiting)
{
    while (waiting-- > 0) {
        int fd = ff_accept(listener, NULL, NULL);
        if (fd < 0)
            return;
        watch(fd);
    }
}

static void serve(const struct kevent *event)
{
    char request[4096];
    int fd = (int)event->ident, goes_on = !(event->flags & EV_EOF);
    if (event->data > 0) {
        ssize_t got = ff_read(fd, request, sizeof request - 1);
        if (got > 0)
            goes_on &= answer(fd, request, (size_t)got);
    }
    if (!goes_on)
        ff_close(fd);
}

static int loop(void *arg)
{
    struct kevent events[EVENTS_MAX];
    int count = ff_kevent(kq, NULL, 0, events, EVENTS_MAX, NULL);
    (void)arg;
    for (int i = 0; i < count; i++) {
        if (events[i].flags & EV_ERROR)
            continue;
        if ((int)events[i].ident == listener)
            accept_all(events[i].data);
        else if (events[i].filter == EVFILT_READ)
            serve(&events[i]);
    }
    return 0;
}

int main(int argc, char *argv[])
{
    ff_init(argc, argv);
    listener = listen_on(80);
    kq = ff_kqueue();
    if (kq < 0)
        fail("ff_kqueue");
    watch(listener);
    run_until_a_signal(loop);
    return 0;
}
