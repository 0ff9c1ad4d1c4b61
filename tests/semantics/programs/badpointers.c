/* Pointers that no program can have: below what is ever mapped, and in the kernel's half. */
#include "t.h"

static void *const BAD[] = {NULL, (void *)1, (void *)-1, (void *)-4096, (void *)0xffff800000000000};
#define COUNT ((int)(sizeof BAD / sizeof *BAD))

static void stream(int fd, void *bad) {
    char byte = 'x';
    struct iovec vec = {bad, 4}, good = {&byte, 1};
    struct msghdr message = {.msg_iov = &vec, .msg_iovlen = 1};
    SAY(read(fd, bad, 4));
    SAY(recv(fd, bad, 4, MSG_PEEK));
    SAY(recvmsg(fd, bad, 0));
    SAY(recvmsg(fd, &message, 0));
    SAY(readv(fd, &vec, 1));
    SAY(readv(fd, bad, 1));
    SAY(write(fd, bad, 4));
    SAY(send(fd, bad, 4, 0));
    SAY(sendmsg(fd, bad, 0));
    SAY(sendmsg(fd, &message, 0));
    SAY(writev(fd, &vec, 1));
    SAY(writev(fd, bad, 1));
    message = (struct msghdr){.msg_iov = bad, .msg_iovlen = 1};
    SAY(sendmsg(fd, &message, 0));
    SAY(recvmsg(fd, &message, 0));
    message = (struct msghdr){
        .msg_iov = &good, .msg_iovlen = 1, .msg_control = bad, .msg_controllen = 24};
    SAY(sendmsg(fd, &message, 0));
    SAY(sendmmsg(fd, bad, 1, 0));
    SAY(recvmmsg(fd, bad, 1, 0, NULL));
}

static void names(int fd, int listener, void *bad) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    SAY(getsockname(fd, (void *)&name, bad));
    SAY(getpeername(fd, bad, &len));
    if (bad) SAY(getsockname(fd, bad, bad));
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    SAY(bind(fresh, bad, sizeof name));
    SAY(connect(fresh, bad, sizeof name));
    SAY(close(fresh));
    if (bad) SAY(accept4(listener, (void *)&name, bad, SOCK_NONBLOCK));
}

static void options(int fd, void *bad) {
    int value = 1;
    socklen_t len = sizeof value;
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, bad, &len));
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, bad));
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, bad, sizeof value));
    SAY(ioctl(fd, FIONREAD, bad));
}

static void waits(int fd, void *bad) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, bad));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY(epoll_wait(set, bad, 1, 0));
    SAY(close(set));
    SAY(poll(bad, 1, 0));
    if (bad) SAY(select(fd + 1, bad, NULL, NULL, NULL));
}

static void datagrams(void *bad) {
    char byte = 'x';
    struct sockaddr_in to = at(peer_ip(), 7001);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect(fd, (void *)&to, sizeof to));
    SAY(send(fd, bad, 4, 0));
    if (bad) SAY(sendto(fd, &byte, 1, 0, bad, sizeof to));
    struct msghdr message = {.msg_name = bad, .msg_namelen = sizeof to};
    if (bad) SAY(sendmsg(fd, &message, 0));
    SAY(close(fd));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    int fd = tcp(7001), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in name = at(own_ip(), 7100);
    SAY(bind(listener, (void *)&name, sizeof name));
    SAY(listen(listener, 4));
    SAY(write(fd, "abcdef", 6));
    sleep_ms(60);
    for (int index = 0; index < COUNT; index++) {
        NOTE("pointer %d", index);
        stream(fd, BAD[index]);
        names(fd, listener, BAD[index]);
        options(fd, BAD[index]);
        waits(fd, BAD[index]);
        datagrams(BAD[index]);
    }
    char text[8] = "";
    SAY(read(fd, text, sizeof text));
    NOTE("%s", text);
}
