/* poll and select, with descriptors of both kinds. */
#include "t.h"

static void *close_soon(void *fd) {
    sleep_ms(50);
    close((intptr_t)fd);
    return NULL;
}

int main(void) {
    char buf[64];
    int fd = tcp(7001), pair[2];
    SAY(pipe(pair));
    struct pollfd p[4] = {{fd, POLLIN, 0}, {pair[0], POLLIN, 0}, {-1, POLLIN, 0}, {999, POLLIN, 0}};
    SAY(poll(p, 3, 0));
    long start = now_ms();
    SAY(poll(p, 3, 100));
    NOTE("%s", took(start, 100));
    SAY(poll(p, 4, 1000));
    say_poll("no such descriptor", p[3].revents);
    SAY(write(fd, "abc", 3));
    SAY(poll(p, 3, 1000));
    say_poll("socket", p[0].revents);
    SAY(write(pair[1], "x", 1));
    SAY(poll(p, 3, 1000));
    say_poll("pipe", p[1].revents);
    p[0].events = POLLOUT | POLLIN;
    SAY(poll(p, 1, 0));
    say_poll("both ways", p[0].revents);

    NOTE("select");
    fd_set in, out, bad;
    struct timeval t = {1, 0};
    FD_ZERO(&in); FD_ZERO(&out); FD_ZERO(&bad);
    FD_SET(fd, &in), FD_SET(pair[0], &in), FD_SET(fd, &out), FD_SET(fd, &bad);
    SAY(select(pair[1] + 1, &in, &out, &bad, &t));
    NOTE("%d%d%d%d", FD_ISSET(fd, &in), FD_ISSET(pair[0], &in), FD_ISSET(fd, &out),
         FD_ISSET(fd, &bad));
    SAY(read(fd, buf, 64));
    SAY(read(pair[0], buf, 64));
    FD_ZERO(&in); FD_SET(fd, &in);
    t = (struct timeval){0, 100000};
    start = now_ms();
    SAY(select(fd + 1, &in, NULL, NULL, &t));
    NOTE("%s, left: %ld.%ld, set: %d", took(start, 100), (long)t.tv_sec, (long)t.tv_usec,
         FD_ISSET(fd, &in));
    FD_SET(fd, &in);
    t = (struct timeval){0, -1};
    SAY(select(fd + 1, &in, NULL, NULL, &t));
    SAY(select(-1, &in, NULL, NULL, NULL));
    FD_ZERO(&in); FD_SET(fd, &in);
    struct timespec ts = {0, 50000000};
    SAY(pselect(fd + 1, &in, NULL, NULL, &ts, NULL));
    ts.tv_nsec = 2000000000;
    SAY(ppoll(p, 1, &ts, NULL));

    NOTE("a full send buffer");
    int full = tcp(7006), size = 4096;
    setsockopt(full, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    nonblocking(full);
    static char block[1 << 16];
    while (write(full, block, sizeof block) > 0) {}
    SAY(write(full, block, 1));
    sleep_ms(300);
    while (write(full, block, sizeof block) > 0) {}
    p[0] = (struct pollfd){full, POLLOUT, 0};
    SAY(poll(p, 1, 50));
    FD_ZERO(&out); FD_SET(full, &out);
    t = (struct timeval){0, 50000};
    SAY(select(full + 1, NULL, &out, NULL, &t));
    SAY(send(full, block, 1, MSG_DONTWAIT));
    close(full);
    close(fd);

    NOTE("a number that another thread closes");
    pthread_t thread;
    int gone = tcp(7001);
    pthread_create(&thread, NULL, close_soon, (void *)(intptr_t)gone);
    p[0] = (struct pollfd){gone, POLLIN, 0};
    SAY(poll(p, 1, 200));
    say_poll("revents", p[0].revents);
    pthread_join(thread, NULL);
}
