/* An epoll set that a child has from its parent. */
#include "t.h"

static int fd, set, pair[2];

static void wait_for(const char *who, int ms) {
    struct epoll_event got[4] = {{0}};
    int count = epoll_wait(set, got, 4, ms);
    printf("%s: %d", who, count);
    for (int want = 1; want < 4; want++)
        for (int i = 0; i < count; i++)
            if (got[i].data.u64 == want) printf(" %x/%d", got[i].events, want);
    NOTE("");
}

static void use_it(const char *who) {
    char buf[16];
    wait_for(who, 50);
    SAY(write(fd, "hello", 5));
    wait_for(who, 1000);
    SAY(read_all(fd, buf, 5));
    wait_for(who, 50);
    SAY(write(pair[1], "x", 1));
    wait_for(who, 1000);
    SAY(write(fd, "more", 4));
    sleep_ms(100);
    wait_for(who, 1000);
    SAY(read_all(fd, buf, 4));
    SAY(read(pair[0], buf, 1));
    wait_for(who, 50);
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 3};
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    wait_for(who, 1000);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 1};
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    SAY(write(fd, "once", 4));
    wait_for(who, 1000);
    wait_for(who, 50);
    SAY(read_all(fd, buf, 4));
    event.events = EPOLLIN;
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    struct epoll_event own = {.events = EPOLLIN, .data.u64 = 3};
    int other = tcp(7002);
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, other, &own));
    readable(other), sleep_ms(50);
    wait_for(who, 1000);
    SAY(epoll_ctl(set, EPOLL_CTL_DEL, other, 0));
    wait_for(who, 50);
    close(other);
}

int main(void) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    fd = tcp(7001), set = epoll_create1(0);
    if (pipe(pair)) return 1;
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    event.data.u64 = 2;
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event));
    for (int i = 0; i < 2; i++) {
        if (!fork()) {
            use_it("child");
            _exit(0);
        }
        wait(0);
        use_it("parent");
    }
}
