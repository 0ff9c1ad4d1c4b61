/* An epoll set that was made before a fork and that both processes wait on and add to. */
#include "t.h"

static int set, first[2], second[2], to_child[2], to_parent[2];

static void tell(int *pair) {
    if (write(pair[1], "", 1) != 1) exit(1);
}

static void hear(int *pair) {
    char byte;
    if (read(pair[0], &byte, 1) != 1) exit(1);
}

static void control(int op, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    SAY(epoll_ctl(set, op, fd, &event));
}

static void wait_for(const char *who, int ms) {
    struct epoll_event got[8] = {{0}};
    int count = epoll_wait(set, got, 8, ms);
    printf("%s: %d", who, count);
    for (uint64_t want = 1; want < 8; want++)
        for (int i = 0; i < count; i++)
            if (got[i].data.u64 == want) printf(" %x/%d", got[i].events, (int)want);
    NOTE("");
}

/* Its own child has the sets of two processes before it. */
static void grandchild(int fd) {
    char buf[8];
    SAY(write(fd, "deep", 4));
    wait_for("grandchild, the child's connection", 1000);
    SAY(read_all(fd, buf, 4));
    SAY(write(first[1], "x", 1));
    control(EPOLL_CTL_ADD, first[0], EPOLLIN, 7);
    wait_for("grandchild, a pipe", 1000);
    _exit(0);
}

/* Takes turns with the parent, which runs while it is awaited. */
static void child(int fd) {
    char buf[8];
    wait_for("child, which has nothing", 50);
    tell(to_parent), hear(to_child);
    wait_for("child, after the parent added a pipe", 1000);
    SAY(read(second[0], buf, 1));
    control(EPOLL_CTL_DEL, first[0], 0, 0);
    control(EPOLL_CTL_MOD, second[0], EPOLLIN | EPOLLONESHOT, 4);
    int own = eventfd(1, 0);
    control(EPOLL_CTL_ADD, own, EPOLLIN, 5);
    tell(to_parent), hear(to_child);
    close(own);
    wait_for("child, after the parent got the one shot", 50);
    tell(to_parent), hear(to_child);
    SAY(write(fd, "mine", 4));
    wait_for("child, its answer", 1000);
    SAY(read_all(fd, buf, 4));
    wait_for("child, at the end", 50);
    int second_fd = tcp(7001);
    control(EPOLL_CTL_ADD, second_fd, EPOLLIN, 6);
    if (!fork()) grandchild(second_fd);
    wait(0);
    wait_for("child, after its own child added a pipe", 50);
    _exit(0);
}

int main(void) {
    char buf[8];
    int fd = tcp(7001);
    set = epoll_create1(0);
    if (pipe(first) || pipe(second) || pipe(to_child) || pipe(to_parent)) return 1;
    control(EPOLL_CTL_ADD, first[0], EPOLLIN, 1);
    control(EPOLL_CTL_ADD, fd, EPOLLIN, 2);
    if (!fork()) child(fd);
    hear(to_parent);
    control(EPOLL_CTL_ADD, second[0], EPOLLIN, 3);
    SAY(write(second[1], "x", 1));
    tell(to_child), hear(to_parent);
    SAY(write(first[1], "x", 1));
    wait_for("parent, after the child removed a pipe and added its own descriptor", 1000);
    SAY(write(second[1], "x", 1));
    wait_for("parent, a pipe that the child made a single shot", 1000);
    wait_for("parent, after that", 50);
    tell(to_child), hear(to_parent);
    wait_for("parent, after the child closed its own descriptor", 50);
    tell(to_child);
    wait(0);
    SAY(read(first[0], buf, 2));
    SAY(write(fd, "last", 4));
    wait_for("parent, alone", 1000);
    return 0;
}
