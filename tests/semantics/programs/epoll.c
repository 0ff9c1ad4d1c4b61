/* epoll: level, edge, one-shot, with kernel descriptors in the same set. */
#include "t.h"

static void show(int set, int timeout) {
    struct epoll_event events[8];
    int n = epoll_wait(set, events, 8, timeout);
    if (n < 0) {
        NOTE("epoll_wait: %s", name_of(errno));
        return;
    }
    /* In the order of their data, as the order of events is nobody's promise. */
    for (uint64_t data = 0; data < 16; data++)
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 == data) {
                printf("  [%d] ", (int)data);
                say_poll("events", events[i].events);
            }
    NOTE("%d in all", n);
}

static int add(int set, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static int change(int set, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
}

int main(void) {
    char buf[64];
    struct epoll_event none[1];
    int set = OPEN(epoll_create1(EPOLL_CLOEXEC));
    int fd = tcp(7001);
    SAY(add(set, fd, EPOLLIN, 0));
    SAY(add(set, fd, EPOLLIN, 0));
    SAY(epoll_wait(set, none, 0, 0));
    SAY(epoll_wait(set, none, -1, 0));
    SAY(epoll_wait(fd, none, 1, 0));
    SAY(epoll_ctl(set, EPOLL_CTL_DEL, 999, 0));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, set, none));
    long start = now_ms();
    SAY(epoll_wait(set, none, 1, 0));
    SAY(epoll_wait(set, none, 1, 100));
    NOTE("%s", took(start, 100));

    NOTE("level");
    SAY(write(fd, "abcdef", 6));
    readable(fd);
    show(set, 1000);
    SAY(read(fd, buf, 2));
    show(set, 0);
    SAY(read(fd, buf, 10));
    show(set, 0);

    NOTE("edge");
    SAY(change(set, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1));
    show(set, 0);
    show(set, 0);
    SAY(write(fd, "ghi", 3));
    readable(fd);
    show(set, 0);
    show(set, 0);
    SAY(read(fd, buf, 1));
    show(set, 0);
    SAY(write(fd, "jkl", 3));
    sleep_ms(50);
    show(set, 0);
    SAY(read(fd, buf, 64));

    NOTE("one shot");
    SAY(change(set, fd, EPOLLIN | EPOLLONESHOT, 2));
    SAY(write(fd, "m", 1));
    readable(fd);
    show(set, 100);
    show(set, 0);
    SAY(change(set, fd, EPOLLIN | EPOLLONESHOT, 2));
    show(set, 0);
    SAY(read(fd, buf, 64));

    NOTE("mixed with a pipe, an eventfd and a timer");
    int pair[2], event = eventfd(0, EFD_NONBLOCK), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    SAY(pipe(pair));
    SAY(change(set, fd, EPOLLIN, 3));
    SAY(add(set, pair[0], EPOLLIN, 4));
    SAY(add(set, event, EPOLLIN, 5));
    SAY(add(set, timer, EPOLLIN, 6));
    show(set, 0);
    struct itimerspec in = {.it_value.tv_nsec = 50000000};
    timerfd_settime(timer, 0, &in, 0);
    start = now_ms();
    show(set, 1000);
    NOTE("%s", took(start, 50));
    SAY(write(pair[1], "p", 1));
    SAY(eventfd_write(event, 1));
    SAY(write(fd, "n", 1));
    sleep_ms(50);
    show(set, 0);
    SAY(epoll_ctl(set, EPOLL_CTL_DEL, timer, 0));
    SAY(read(fd, buf, 64));
    SAY(read(pair[0], buf, 64));
    show(set, 0);

    NOTE("closing takes it out; the peer's FIN");
    int late = tcp(7002);
    SAY(add(set, late, EPOLLIN | EPOLLRDHUP, 7));
    sleep_ms(50);
    SAY(epoll_ctl(set, EPOLL_CTL_DEL, event, 0));
    show(set, 100);
    SAY(close(late));
    show(set, 0);
    SAY(close(fd));
    show(set, 0);

    NOTE("a listener");
    int server = listener(8320);
    SAY(add(set, server, EPOLLIN, 8));
    show(set, 0);
    int asked = ask_peer(8320, "hello");
    show(set, 1000);
    fd = OPEN(accept4(server, 0, 0, SOCK_NONBLOCK));
    show(set, 0);
    SAY(add(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 9));
    readable(fd);
    show(set, 1000);
    close(asked);

    NOTE("members with the same data");
    int many = OPEN(epoll_create1(0));
    SAY(write(pair[1], "p", 1));
    SAY(add(many, server, EPOLLIN, 11));
    SAY(add(many, fd, EPOLLIN, 11));
    SAY(add(many, pair[0], EPOLLIN, 11));
    sleep_ms(1);
    show(many, 0);
    SAY(read(pair[0], buf, 64));
    show(many, 0);
    SAY(close(many));

    NOTE("nested");
    int outer = OPEN(epoll_create1(0));
    SAY(add(outer, set, EPOLLIN, 10));
    show(outer, 100);
    SAY(read(fd, buf, 64));
    SAY(change(set, fd, EPOLLIN, 9));
    show(outer, 0);
    SAY(close(outer));
    SAY(close(set));

    NOTE("more events than fit in a small array");
    static struct epoll_event all[512];
    set = OPEN(epoll_create1(0));
    SAY(add(set, server, EPOLLIN, 12));
    for (int i = 0; i < 400; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
        epoll_ctl(set, EPOLL_CTL_ADD, eventfd(1, 0), &event);
    }
    SAY(epoll_wait(set, all, 512, 1000));
    SAY(epoll_wait(set, all, 300, 1000));
    SAY(close(set));
}
