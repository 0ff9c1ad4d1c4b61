/* A client with several engines: each thread connects, asks and waits by an epoll set of its own,
 * and so has an engine of its own on the device. Answers arrive at the engine that sent the
 * request.
 *
 *     engines_client ADDRESS PORT THREADS CONNECTIONS REQUESTS \
 *         --ip 10.0.0.5/24 --if eth1 --thread-engines 4
 *
 * A connection sends 32 bytes and waits for as many, REQUESTS times; 0: until SIGTERM. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slipstack.h"

enum { THREADS_MAX = 16, CONNECTIONS_MAX = 256, LEN = 32 };

struct connection {
    int fd;
    long asked;
    size_t got;
};

struct client {
    pthread_t thread;
    int number, ep;
    long answers;
    struct connection connections[CONNECTIONS_MAX];
};

static struct client clients[THREADS_MAX];
static struct sockaddr_in server;
static int threads, connections;
static long requests;
static volatile sig_atomic_t is_over;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void ask(struct client *own, struct connection *c)
{
    char bytes[LEN];
    memset(bytes, 'a' + own->number, sizeof bytes);
    if (ff_send(c->fd, bytes, sizeof bytes, 0) != LEN)
        fail("ff_send");
    c->asked++;
    c->got = 0;
}

static void open_one(struct client *own, struct connection *c)
{
    struct epoll_event event = {.events = EPOLLOUT, .data = {.ptr = c}};
    c->fd = ff_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0 || (ff_connect(c->fd, (struct linux_sockaddr *)&server, sizeof server) < 0 &&
                      errno != EINPROGRESS))
        fail("ff_connect");
    if (ff_epoll_ctl(own->ep, EPOLL_CTL_ADD, c->fd, &event) < 0)
        fail("ff_epoll_ctl");
}

/* Returns whether the connection continues. */
static int go_on(struct client *own, struct connection *c)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = c}};
    char bytes[LEN];
    int error = 0;
    socklen_t len = sizeof error;
    if (c->asked == 0) {
        if (ff_getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error) {
            errno = error;
            fail("connect");
        }
        ff_epoll_ctl(own->ep, EPOLL_CTL_MOD, c->fd, &event);
        ask(own, c);
        return 1;
    }
    ssize_t got = ff_recv(c->fd, bytes, sizeof bytes - c->got, 0);
    if (got < 0 && errno == EAGAIN)
        return 1;
    if (got <= 0 || bytes[0] != 'a' + own->number)
        fail("an answer");
    c->got += (size_t)got;
    if (c->got < LEN)
        return 1;
    own->answers++;
    if (is_over || (requests > 0 && c->asked == requests)) {
        ff_close(c->fd);
        return 0;
    }
    ask(own, c);
    return 1;
}

static void *work(void *arg)
{
    struct client *own = (struct client *)arg;
    struct epoll_event events[64];
    int left = connections;
    if ((own->ep = ff_epoll_create(1)) < 0)
        fail("ff_epoll_create");
    for (int i = 0; i < connections; i++)
        open_one(own, &own->connections[i]);
    while (left > 0) {
        int count = ff_epoll_wait(own->ep, events, 64, 5000);
        if (count == 0 || (count < 0 && errno != EINTR))
            fail("ff_epoll_wait");
        for (int i = 0; i < count; i++)
            if (!go_on(own, (struct connection *)events[i].data.ptr))
                left--;
    }
    return NULL;
}

static void on_signal(int signal)
{
    (void)signal;
    is_over = 1;
}

int main(int argc, char *argv[])
{
    ff_init(argc, argv);
    server.sin_family = AF_INET;
    if (argc < 6 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1)
        return 64;
    server.sin_port = htons((uint16_t)atoi(argv[2]));
    threads = atoi(argv[3]);
    connections = atoi(argv[4]);
    requests = atol(argv[5]);
    if (threads < 1 || threads > THREADS_MAX || connections < 1 || connections > CONNECTIONS_MAX)
        return 64;
    signal(SIGTERM, on_signal);
    for (int i = 0; i < threads; i++) {
        clients[i].number = i;
        if (ff_pthread_create(&clients[i].thread, NULL, work, &clients[i]) != 0)
            fail("ff_pthread_create");
    }
    for (int i = 0; i < threads; i++) {
        ff_pthread_join(clients[i].thread, NULL);
        printf("thread %d: %ld answers\n", i, clients[i].answers);
    }
    return 0;
}
