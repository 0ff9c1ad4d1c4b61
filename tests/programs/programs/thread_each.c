/* A thread for each connection.

   `thread_each serve PORT [MICROSECONDS]`: accepts, and a thread for each connection answers each
   request of 32 bytes with as many, by blocking calls, after computing for so long.
   `thread_each ask ADDRESS PORT COUNT SECONDS [PAUSE]`: has so many connections, each with one
   request at a time, after a pause of so many microseconds; prints the answers of each. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 32, MOST = 1024 };

static long work_ns;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *answer(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char request[LEN];
    while (recv(fd, request, LEN, MSG_WAITALL) == LEN) {
        for (int64_t until = work_ns ? now_ns() + work_ns : 0; work_ns && now_ns() < until;)
            ;
        if (send(fd, request, LEN, MSG_NOSIGNAL) != LEN)
            break;
    }
    close(fd);
    return NULL;
}

static void serve(int port)
{
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&name, sizeof name) || listen(listener, 512))
        fail("listen");
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        if (fd < 0)
            fail("accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, answer, (void *)(intptr_t)fd))
            fail("pthread_create");
        pthread_detach(thread);
    }
}

struct asker {
    int fd, timer;
    long answers;
};

static void ask(struct asker *one)
{
    char request[LEN] = "request";
    if (send(one->fd, request, LEN, MSG_NOSIGNAL) != LEN)
        fail("send");
}

static void on_answer(struct asker *one, long pause_us)
{
    char got[LEN];
    if (recv(one->fd, got, LEN, MSG_WAITALL) != LEN)
        fail("recv");
    one->answers++;
    if (pause_us == 0) {
        ask(one);
        return;
    }
    struct itimerspec pause = {{0}, {pause_us / 1000000, pause_us % 1000000 * 1000}};
    timerfd_settime(one->timer, 0, &pause, NULL);
}

static void on_event(int poll, struct asker *askers, uint64_t data, long pause_us)
{
    struct asker *one = &askers[data / 2];
    uint64_t count;
    (void)poll;
    if (data % 2 == 0)
        on_answer(one, pause_us);
    else if (read(one->timer, &count, sizeof count) == sizeof count)
        ask(one);
}

static void watch(int poll, int fd, uint64_t data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event))
        fail("epoll_ctl");
}

static void connect_all(int poll, struct asker *askers, int count, char **args, long pause_us)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(atoi(args[1]))};
    int one = 1;
    inet_pton(AF_INET, args[0], &name.sin_addr);
    for (int at = 0; at < count; at++) {
        struct asker *asker = &askers[at];
        asker->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(asker->fd, (void *)&name, sizeof name))
            fail("connect");
        setsockopt(asker->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        watch(poll, asker->fd, 2 * at);
        if (pause_us) {
            asker->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
            watch(poll, asker->timer, 2 * at + 1);
        }
    }
}

static void run_until(int poll, struct asker *askers, int64_t until, long pause_us)
{
    struct epoll_event events[64];
    while (now_ns() < until) {
        int ready = epoll_wait(poll, events, 64, 100);
        for (int at = 0; at < ready; at++)
            on_event(poll, askers, events[at].data.u64, pause_us);
    }
}

static void ask_all(char **args, long pause_us)
{
    static struct asker askers[MOST];
    int count = atoi(args[2]), poll = epoll_create1(0);
    if (count > MOST)
        count = MOST;
    connect_all(poll, askers, count, args, pause_us);
    for (int at = 0; at < count; at++)
        ask(&askers[at]);
    /* The threads have found their places by then. */
    run_until(poll, askers, now_ns() + 500000000, pause_us);
    for (int at = 0; at < count; at++)
        askers[at].answers = 0;
    run_until(poll, askers, now_ns() + (int64_t)(atof(args[3]) * 1e9), pause_us);
    for (int at = 0; at < count; at++)
        printf("%ld%c", askers[at].answers, at + 1 < count ? ' ' : '\n');
}

int main(int count, char **args)
{
    if (count >= 3 && !strcmp(args[1], "serve")) {
        work_ns = count > 3 ? atol(args[3]) * 1000 : 0;
        serve(atoi(args[2]));
    } else if (count >= 6 && !strcmp(args[1], "ask")) {
        ask_all(args + 2, count > 6 ? atol(args[6]) : 0);
    } else {
        fprintf(stderr, "%s serve PORT [MICROSECONDS] | ask ADDRESS PORT COUNT SECONDS [PAUSE]\n",
                args[0]);
        return 2;
    }
}
