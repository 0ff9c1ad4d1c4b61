/* Waits end when they should. */
#include "t.h"

static void on_alarm(int signal) { (void)signal; }

/* A negative time is none at all. */
static void negative(void) {
    char buf[4];
    struct timeval t = {-1, 0};
    int fd = tcp(7001), udp = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(udp, own_ip(), 8331));
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    SAY(setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    alarm(2);
    SAY(recv(fd, buf, 1, 0));
    SAY(recv(udp, buf, 1, 0));
    alarm(0);
    SAY(write(fd, "a", 1));
    readable(fd);
    SAY(recv(fd, buf, 1, 0));
    SAY(close(fd));
    SAY(close(udp));
}

/* The time is for all that is asked for, not for each piece; the peer waits at each dot. */
static void whole(void) {
    char buf[16];
    struct timeval t = {0, 120000};
    int fd = tcp(7009);
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    SAY(write(fd, "a.b.c.d.e.f.g.h.", 16));
    long start = now_ms();
    long count = recv(fd, buf, 8, MSG_WAITALL);
    NOTE("all: %d, %s", count == 8, took(start, 120));
    SAY(close(fd));
}

/* A negative time to linger is a long one. */
static void linger(void) {
    char buf[8];
    struct linger long_one = {1, -1};
    int server = listener(8332), fd = socket(AF_INET, SOCK_STREAM, 0);
    struct pollfd p = {server, POLLIN, 0};
    poll(&p, 1, 0);
    SAY(connect_to(fd, own_ip(), 8332));
    int other = OPEN(accept(server, 0, 0));
    SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &long_one, sizeof long_one));
    SAY(write(fd, "abc", 3));
    SAY(close(fd));
    SAY(read(other, buf, 8));
    SAY(read(other, buf, 8));
    SAY(close(other));
    SAY(close(server));
}

/* What is left of the time is told whatever ends the call. */
static void selected(void) {
    int fd = tcp(7001);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    struct itimerval alarm_in = {.it_value = {0, 200000}};
    struct timeval t = {1, 0};
    setitimer(ITIMER_REAL, &alarm_in, 0);
    SAY(select(fd + 1, &in, 0, 0, &t));
    NOTE("some: %d, all: %d", t.tv_usec > 0, t.tv_sec == 1);
    t = (struct timeval){0, 50000};
    SAY(select(fd + 1, &in, 0, 0, &t));
    NOTE("%ld %ld", (long)t.tv_sec, (long)t.tv_usec);
    SAY(close(fd));
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, 0);
    char buf[64];
    int fd = tcp(7001);
    struct timeval t = {0, 100000};
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    struct timeval back = {0};
    socklen_t len = sizeof back;
    SAY(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len));
    NOTE("%ld.%06ld", (long)back.tv_sec, (long)back.tv_usec);
    long start = now_ms();
    SAY(read(fd, buf, 1));
    NOTE("%s", took(start, 100));
    start = now_ms();
    SAY(recv(fd, buf, 4, MSG_WAITALL));
    NOTE("%s", took(start, 100));
    SAY(write(fd, "ab", 2));
    start = now_ms();
    SAY(recv(fd, buf, 4, MSG_WAITALL));
    NOTE("%s", took(start, 100));
    SAY(close(fd));

    fd = tcp(7006);
    int size = 4096;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    SAY(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
    static char block[1 << 20];
    long n;
    while ((n = write(fd, block, sizeof block)) > 0) {}
    NOTE("%s", name_of(errno));
    start = now_ms();
    /* A window probe may have found room for a few bytes. */
    n = write(fd, block, sizeof block);
    NOTE("no room: %d, %s", n < 4096, took(start, 100));
    SAY(close(fd));

    int server = listener(8330);
    SAY(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    start = now_ms();
    SAY(accept(server, 0, 0));
    NOTE("%s", took(start, 100));
    SAY(close(server));

    fd = tcp(7008);
    struct pollfd p = {fd, POLLIN, 0};
    start = now_ms();
    SAY(poll(&p, 1, 2000));
    NOTE("%s", took(start, 300));
    SAY(read(fd, buf, 64));
    SAY(close(fd));

    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    start = now_ms();
    SAY(recv(fd, buf, 1, 0));
    NOTE("%s", took(start, 100));
    t.tv_usec = 1000000;
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    SAY(close(fd));

    NOTE("of a child that serves what it was given");
    for (int is_late = 0; is_late < 2; is_late++) {
        int status;
        fd = tcp(7001);
        t = (struct timeval){0, 100000};
        if (!is_late) SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
        if (!fork()) {
            SAY(write(fd, "a", 1));
            if (is_late) SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
            alarm(5);
            SAY(recv(fd, buf, 1, 0));
            start = now_ms();
            SAY(recv(fd, buf, 1, 0));
            NOTE("%s", took(start, 100));
            back.tv_sec = back.tv_usec = 9, len = sizeof back;
            SAY(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len));
            NOTE("%ld.%06ld", (long)back.tv_sec, (long)back.tv_usec);
            _exit(0);
        }
        close(fd), wait(&status);
    }
    negative();
    whole();
    linger();
    selected();
}
