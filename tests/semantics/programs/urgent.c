/* Urgent data both ways: MSG_OOB, SO_OOBINLINE, the mark, POLLPRI, SIGURG. */
#include "t.h"

static volatile int signals;
static void on_urgent(int number) { (void)number; signals++; }

/* The byte that MSG_OOB gives. */
static void oob(int fd, int flags) {
    char byte[8] = "";
    struct iovec v = {byte, sizeof byte};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    errno = 0;
    long n = recvmsg(fd, &m, MSG_OOB | flags);
    if (n < 0) NOTE("oob: %s", name_of(errno));
    else NOTE("oob: %ld \"%.*s\"%s%s", n, (int)n, byte, m.msg_flags & MSG_OOB ? " OOB" : "",
              m.msg_flags & MSG_TRUNC ? " TRUNC" : "");
}

static void take(int fd, int len, int flags) {
    char buf[512] = "";
    errno = 0;
    long n = recv(fd, buf, len, flags);
    if (n < 0) NOTE("recv %d: %s", len, name_of(errno));
    else NOTE("recv %d: %ld \"%.*s\"", len, n, (int)n, buf);
}

static void state(int fd) {
    struct pollfd p = {fd, POLLIN | POLLPRI | POLLRDHUP, 0};
    int waiting = -1, at = -1;
    poll(&p, 1, 0);
    ioctl(fd, FIONREAD, &waiting);
    ioctl(fd, SIOCATMARK, &at);
    NOTE("at mark %d %d, waiting %d", sockatmark(fd), at, waiting);
    say_poll("poll", p.revents);
}

static void order(int fd, const char *what) {
    NOTE("peer: %s", what);
    if (write(fd, what, strlen(what)) < 0) NOTE("write: %s", name_of(errno));
    sleep_ms(30 + 60 * (strchr(what, '.') != 0) * 3);
}

static void receive(void) {
    NOTE("a byte between others");
    int fd = tcp(7009);
    oob(fd, 0), state(fd);
    order(fd, "abXcd");
    state(fd);
    take(fd, 1, 0), oob(fd, MSG_PEEK), oob(fd, 0), oob(fd, 0), state(fd);
    take(fd, 100, MSG_PEEK), take(fd, 100, 0), state(fd);
    take(fd, 100, MSG_PEEK), state(fd);
    take(fd, 100, 0), state(fd), oob(fd, 0);

    NOTE("not taken: lost");
    order(fd, "eYf");
    take(fd, 100, 0), take(fd, 100, 0), oob(fd, 0), state(fd);
    order(fd, "Z");
    state(fd), take(fd, 100, MSG_DONTWAIT), oob(fd, 0), state(fd);

    NOTE("two marks: the second one counts");
    order(fd, "gQhRi");
    take(fd, 100, 0), oob(fd, 0), state(fd), take(fd, 100, 0);
    order(fd, "A"), state(fd);
    order(fd, "B"), state(fd), oob(fd, 0), take(fd, 100, MSG_DONTWAIT), state(fd);

    NOTE("all of it");
    order(fd, "jCk");
    take(fd, 2, MSG_WAITALL), take(fd, 1, MSG_WAITALL);
    order(fd, "lmDno");
    take(fd, 100, MSG_WAITALL | MSG_DONTWAIT), take(fd, 4, MSG_WAITALL | MSG_DONTWAIT);
    order(fd, "pE");
    take(fd, 9, MSG_WAITALL), oob(fd, 0);

    NOTE("dropped");
    order(fd, "qrFst");
    char buf[512];
    SAY(recv(fd, buf, 100, MSG_TRUNC));
    SAY(recv(fd, buf, 100, MSG_TRUNC));
    SAY(recv(fd, buf, 0, MSG_OOB));
    order(fd, "G");
    char byte[1];
    struct iovec v = {byte, 0};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    SAY(recvmsg(fd, &m, MSG_OOB));
    NOTE("flags %s%s", m.msg_flags & MSG_OOB ? "OOB " : "", m.msg_flags & MSG_TRUNC ? "TRUNC" : "");
    state(fd);
    take(fd, 100, MSG_DONTWAIT);

    NOTE("larger pieces");
    order(fd, "-+-");
    SAY(recv(fd, buf, sizeof buf, 0));
    state(fd), oob(fd, 0);
    SAY(recv(fd, buf, sizeof buf, 0));
    shutdown(fd, SHUT_WR);
    SAY(recv(fd, buf, sizeof buf, 0));
    state(fd), oob(fd, 0);
    close(fd);
}

static void in_line(void) {
    int on = 1, off = 0, is = -1;
    socklen_t len = sizeof is;
    NOTE("in line");
    int fd = tcp(7009);
    SAY(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
    SAY(getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &is, &len));
    NOTE("%d", is);
    order(fd, "abXcd");
    state(fd), oob(fd, 0), take(fd, 100, 0), state(fd), oob(fd, 0);
    take(fd, 100, 0), state(fd);
    order(fd, "Y"), state(fd), take(fd, 100, 0), state(fd);
    order(fd, "eZ");
    SAY(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &off, sizeof off));
    take(fd, 100, 0), oob(fd, 0), take(fd, 100, MSG_DONTWAIT);
    close(fd);
}

static void send_urgent(void) {
    char said[256] = "";
    NOTE("sending");
    int fd = tcp(7011);
    SAY(send(fd, "abc", 3, 0));
    sleep_ms(50);
    SAY(send(fd, "X", 1, MSG_OOB));
    sleep_ms(50);
    SAY(send(fd, "def", 3, 0));
    sleep_ms(50);
    SAY(send(fd, "ghiY", 4, MSG_OOB));
    sleep_ms(50);
    SAY(send(fd, "", 0, MSG_OOB));
    SAY(send(fd, "jk", 2, MSG_MORE));
    SAY(send(fd, "Z", 1, MSG_OOB | MSG_MORE));
    sleep_ms(50);
    SAY(send(fd, "l", 1, 0));
    shutdown(fd, SHUT_WR);
    SAY(send(fd, "W", 1, MSG_OOB | MSG_NOSIGNAL));
    long n = read_all(fd, said, sizeof said - 1);
    NOTE("the peer saw %.*s", (int)n, said);
    close(fd);
    int idle = socket(AF_INET, SOCK_STREAM, 0);
    SAY(send(idle, "x", 1, MSG_OOB | MSG_NOSIGNAL));
    SAY(recv(idle, said, 1, MSG_OOB));
    int at = -1;
    SAY(ioctl(idle, SIOCATMARK, &at));
    NOTE("%d", at);
    close(idle);
}

static void accepted(void) {
    int on = 1, is = -1;
    socklen_t len = sizeof is;
    NOTE("an accepted one");
    int l = listener(8341);
    SAY(setsockopt(l, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
    int control = ask_peer(8341, "oob");
    int fd = accept(l, 0, 0);
    SAY(getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &is, &len));
    NOTE("%d", is);
    sleep_ms(100);
    take(fd, 100, 0), state(fd), take(fd, 100, 0);
    close(fd), close(control), close(l);
}

static void watchers(void) {
    NOTE("select and epoll");
    int fd = tcp(7009), set = epoll_create1(0);
    struct epoll_event e = {EPOLLPRI | EPOLLET, {.u32 = 1}}, got[4];
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e));
    SAY(epoll_wait(set, got, 4, 0));
    order(fd, "ab");
    SAY(epoll_wait(set, got, 4, 0));
    order(fd, "X");
    SAY(epoll_wait(set, got, 4, 1000));
    say_poll("epoll", got[0].events);
    SAY(epoll_wait(set, got, 4, 0));
    fd_set in, bad;
    struct timeval t = {1, 0};
    FD_ZERO(&in); FD_ZERO(&bad); FD_SET(fd, &in), FD_SET(fd, &bad);
    SAY(select(fd + 1, &in, NULL, &bad, &t));
    NOTE("%d%d", FD_ISSET(fd, &in), FD_ISSET(fd, &bad));
    take(fd, 100, 0);
    FD_ZERO(&in); FD_ZERO(&bad); FD_SET(fd, &in), FD_SET(fd, &bad);
    SAY(select(fd + 1, &in, NULL, &bad, &t));
    NOTE("%d%d", FD_ISSET(fd, &in), FD_ISSET(fd, &bad));
    oob(fd, 0);
    t = (struct timeval){0, 50000};
    FD_ZERO(&in); FD_ZERO(&bad); FD_SET(fd, &in), FD_SET(fd, &bad);
    SAY(select(fd + 1, &in, NULL, &bad, &t));
    order(fd, "Y");
    SAY(epoll_wait(set, got, 4, 1000));
    say_poll("epoll", got[0].events);
    close(fd), close(set);
}

/* A thread blocks in read while the urgent byte comes; the signal comes whatever the program
 * does. */
static void sigurg(void) {
    NOTE("SIGURG");
    struct sigaction act = {.sa_handler = on_urgent};
    sigaction(SIGURG, &act, NULL);
    int fd = tcp(7009), other = tcp(7009);
    SAY(fcntl(fd, F_GETOWN));
    SAY(fcntl(fd, F_SETOWN, 99999999));
    SAY(fcntl(fd, F_SETOWN, getpid()));
    NOTE("%d %d", fcntl(fd, F_GETOWN) == getpid(), fcntl(other, F_GETOWN));
    order(other, "X");
    NOTE("%d", signals);
    SAY(write(fd, ".X", 2));
    char buf[8];
    SAY(read(fd, buf, sizeof buf));
    NOTE("%d", signals);
    oob(fd, 0);
    take(fd, 100, MSG_DONTWAIT);
    SAY(write(fd, ".aY", 3));
    sigset_t none;
    sigemptyset(&none);
    alarm(3);
    SAY(sigsuspend(&none));
    alarm(0);
    NOTE("%d", signals);
    take(fd, 100, 0), oob(fd, 0);
    act.sa_flags = SA_RESTART;
    sigaction(SIGURG, &act, NULL);
    int group = -getpgrp();
    SAY(ioctl(fd, SIOCSPGRP, &group));
    SAY(write(fd, ".Z..b", 5));
    SAY(read(fd, buf, sizeof buf));
    NOTE("%d", signals);
    SAY(fcntl(fd, F_SETOWN, 0));
    order(fd, "Q");
    NOTE("%d", signals);
    struct f_owner_ex { int type, pid; } ex = {1, getpid()};
    SAY(fcntl(fd, 15, &ex));
    memset(&ex, 0, sizeof ex);
    SAY(fcntl(fd, 16, &ex));
    NOTE("%d %d", ex.type, ex.pid == getpid());
    order(fd, "cR");
    NOTE("%d", signals);
    close(fd), close(other);
}

int main(void) {
    receive();
    in_line();
    send_urgent();
    accepted();
    watchers();
    sigurg();
}
