/* A web server in the loop of ff_run, with epoll: every request gets the same page. As on
 * other servers, one of HTTP/1.0 ends its connection, which this end closes first.
 *
 *     epoll_http --conf config.ini
 *     epoll_http --ip 10.0.0.5/24 --if eth1
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "ff_api.h"
#include "ff_epoll.h"

#define EVENTS_MAX 512

#define PAGE(connection)             \
    "HTTP/1.1 200 OK\r\n"            \
    "Server: epoll_http\r\n"         \
    "Content-Type: text/plain\r\n"   \
    "Content-Length: 21\r\n"         \
    "Connection: " connection "\r\n" \
    "\r\n"                           \
    "hello from the stack\n"

static const char page[] = PAGE("keep-alive");
static const char last_page[] = PAGE("close");

static int epfd;
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

/* Returns whether the connection goes on. */
static int answer(int fd, char *request, size_t len)
{
    request[len] = 0;
    if (strstr(request, " HTTP/1.0\r\n") == NULL)
        return ff_write(fd, page, sizeof page - 1) > 0;
    ff_write(fd, last_page, sizeof last_page - 1);
    return 0;
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
    epfd = ff_epoll_create(0);
    if (epfd < 0)
        fail("ff_epoll_create");
    watch(listener, EPOLLIN);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    ff_run(loop, NULL);
    return 0;
}
