/* A web server in the loop of ff_run, with kqueue: every request gets the same page. As on
 * other servers, one of HTTP/1.0 ends its connection, which this end closes first.
 *
 *     kqueue_http --conf config.ini
 *     kqueue_http --ip 10.0.0.5/24 --if eth1
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ff_api.h"

#define EVENTS_MAX 512

#define PAGE(connection)             \
    "HTTP/1.1 200 OK\r\n"            \
    "Server: kqueue_http\r\n"        \
    "Content-Type: text/plain\r\n"   \
    "Content-Length: 21\r\n"         \
    "Connection: " connection "\r\n" \
    "\r\n"                           \
    "hello from the stack\n"

static const char page[] = PAGE("keep-alive");
static const char last_page[] = PAGE("close");

static int kq;
static int listener;

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

/* Returns whether the connection goes on. */
static int answer(int fd, char *request, size_t len)
{
    request[len] = 0;
    if (strstr(request, " HTTP/1.0\r\n") == NULL)
        return ff_write(fd, page, sizeof page - 1) > 0;
    ff_write(fd, last_page, sizeof last_page - 1);
    return 0;
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
    int on = 1;
    struct sockaddr_in address;

    ff_init(argc, argv);
    listener = ff_socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0)
        fail("ff_socket");
    ff_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ff_ioctl(listener, FIONBIO, &on);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(80);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    if (ff_bind(listener, (struct linux_sockaddr *)&address, sizeof address) < 0)
        fail("ff_bind");
    if (ff_listen(listener, 512) < 0)
        fail("ff_listen");
    kq = ff_kqueue();
    if (kq < 0)
        fail("ff_kqueue");
    watch(listener);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    ff_run(loop, NULL);
    return 0;
}
