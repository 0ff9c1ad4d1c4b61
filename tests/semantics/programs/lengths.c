/* Calls for nothing, for all, and for at least so much. */
#include "t.h"

static void on_alarm(int signal) { (void)signal; }

/* What waits is ended. */
static void guard(void) {
    struct itimerval in = {.it_value = {0, 150000}};
    setitimer(ITIMER_REAL, &in, 0);
}

static void of_streams(void) {
    char buf[16];
    struct iovec none[2] = {{buf, 0}, {NULL, 0}};
    NOTE("a stream, nothing there");
    int fd = tcp(7001);
    SAY(read(fd, buf, 0));
    SAY(readv(fd, none, 2));
    SAY(recv(fd, buf, 0, MSG_DONTWAIT));
    SAY(recv(fd, buf, 0, MSG_PEEK | MSG_DONTWAIT));
    guard();
    long start = now_ms();
    SAY(recv(fd, buf, 0, 0));
    NOTE("%s", took(start, 150));
    SAY(write(fd, "ab", 2));
    readable(fd);
    SAY(recv(fd, buf, 0, 0));
    SAY(recv(fd, buf, 0, MSG_DONTWAIT));
    SAY(recv(fd, buf, 16, 0));
    SAY(shutdown(fd, SHUT_WR));
    readable(fd);
    SAY(recv(fd, buf, 0, MSG_DONTWAIT));
    SAY(close(fd));

    NOTE("fresh");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(read(fd, buf, 0));
    SAY(readv(fd, none, 2));
    SAY(writev(fd, none, 2));
    SAY(write(fd, buf, 0));
    SAY(recv(fd, buf, 0, 0));
    SAY(close(fd));

    NOTE("refused");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect_to(fd, peer_ip(), 7999);
    sleep_ms(100);
    SAY(recv(fd, buf, 0, 0));
    SAY(so_error(fd));
    SAY(close(fd));

    NOTE("reset");
    fd = tcp(7003);
    sleep_ms(50);
    SAY(recv(fd, buf, 0, 0));
    SAY(recv(fd, buf, 1, 0));
    SAY(close(fd));
}

static void of_datagrams(void) {
    char buf[16];
    struct iovec none[2] = {{buf, 0}, {NULL, 0}};
    NOTE("datagrams");
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(read(fd, buf, 0));
    SAY(readv(fd, none, 2));
    SAY(send(fd, "abc", 3, 0));
    readable(fd);
    SAY(read(fd, buf, 0));
    SAY(readv(fd, none, 1));
    SAY(recv(fd, buf, 8, MSG_DONTWAIT));
    struct pollfd p = {fd, POLLIN, 0};
    SAY(writev(fd, none, 2));
    SAY(poll(&p, 1, 150));
    SAY(write(fd, buf, 0));
    SAY(poll(&p, 1, 1000));
    SAY(recv(fd, buf, 8, MSG_DONTWAIT));
    SAY(close(fd));
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(writev(fd, none, 2));
    SAY(read(fd, buf, 0));
    SAY(close(fd));
}

/* The peer waits 50 ms at a dot. */
static void unseen(void) {
    char buf[8] = "xxxxxxx";
    NOTE("bytes that nobody wants to see");
    int fd = tcp(7009);
    SAY(write(fd, "ab...cd", 7));
    sleep_ms(50);
    SAY(recv(fd, buf, 4, MSG_TRUNC | MSG_WAITALL));
    NOTE("%.7s", buf);
    SAY(close(fd));
    fd = tcp(7001);
    SAY(write(fd, "abcd", 4));
    SAY(recv(fd, buf, 4, MSG_TRUNC));
    NOTE("%.7s", buf);
    SAY(write(fd, "efgh", 4));
    readable(fd);
    SAY(recv(fd, buf, 2, MSG_TRUNC | MSG_PEEK));
    SAY(recv(fd, buf, 7, MSG_TRUNC | MSG_PEEK | MSG_DONTWAIT));
    NOTE("%.7s", buf);
    SAY(recv(fd, buf, 7, 0));
    NOTE("%.7s", buf);
    SAY(recv(fd, buf, 7, MSG_TRUNC | MSG_PEEK | MSG_DONTWAIT));
    SAY(close(fd));
}

static void low_water(void) {
    char buf[16];
    NOTE("SO_RCVLOWAT");
    int fd = tcp(7001), low = 5;
    socklen_t len = sizeof low;
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    low = 0;
    SAY(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len));
    NOTE("%d", low);
    SAY(write(fd, "abc", 3));
    sleep_ms(60);
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, 1, 50));
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY(epoll_wait(set, &event, 1, 50));
    SAY(recv(fd, buf, 1, 0));
    SAY(recv(fd, buf, 16, MSG_PEEK | MSG_DONTWAIT));
    struct timeval t = {0, 100000};
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    long start = now_ms();
    SAY(recv(fd, buf, 16, 0));
    NOTE("%s", took(start, 100));
    SAY(write(fd, "defgh", 5));
    SAY(epoll_wait(set, &event, 1, 1000));
    SAY(poll(&p, 1, 50));
    SAY(recv(fd, buf, 16, 0));
    SAY(write(fd, "ijk", 3));
    sleep_ms(60);
    SAY(poll(&p, 1, 0));
    low = 0;
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    SAY(epoll_wait(set, &event, 1, 0));
    SAY(close(set));
    SAY(close(fd));
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, 0);
    signal(SIGPIPE, SIG_IGN);
    of_streams();
    of_datagrams();
    unseen();
    low_water();
}
