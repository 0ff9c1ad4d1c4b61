/* pthread_cancel: which calls act on it. */
#include "t.h"
#include <sys/syscall.h>

static int fd, other, server, set;

/* What has been asked for before the call; a call that acts on it does nothing else. */
#define CALLS \
    A(read(fd, b, 1)) A(write(fd, b, 1)) A(recv(fd, b, 1, MSG_DONTWAIT)) A(send(fd, b, 1, 0)) \
    A(recvfrom(fd, b, 1, MSG_DONTWAIT, 0, 0)) A(sendto(fd, b, 1, 0, 0, 0)) \
    A(recvmsg(fd, &m.msg_hdr, MSG_DONTWAIT)) A(sendmsg(fd, &m.msg_hdr, 0)) \
    A(recvmmsg(fd, &m, 1, MSG_DONTWAIT, 0)) A(sendmmsg(fd, &m, 1, 0)) A(readv(fd, &v, 1)) \
    A(writev(fd, &v, 1)) A(preadv2(fd, &v, 1, -1, 8)) A(pwritev2(fd, &v, 1, -1, 0)) \
    A(poll(&p, 1, 0)) A(ppoll(&p, 1, &none, 0)) A(select(fd + 1, &in, 0, 0, &zero)) \
    A(pselect(fd + 1, &in, 0, 0, &none, 0)) A(epoll_wait(set, &e, 1, 0)) \
    A(epoll_pwait(set, &e, 1, 0, 0)) A(epoll_pwait2(set, &e, 1, &none, 0)) \
    A(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e)) A(epoll_create1(0)) \
    A(getsockopt(fd, SOL_SOCKET, SO_ERROR, &n, &len)) \
    A(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &n, sizeof n)) \
    A(bind(other, (void *)&any, sizeof any)) A(listen(other, 1)) A(shutdown(fd, SHUT_WR)) \
    A(getsockname(fd, (void *)&any, &size)) A(getpeername(fd, (void *)&any, &size)) \
    A(fcntl(fd, F_GETFL)) A(fcntl(fd, F_SETFL, O_NONBLOCK)) A(ioctl(fd, FIONREAD, &n)) \
    A(dup(fd)) A(dup2(fd, 90)) A(dup3(fd, 91, 0)) A(socket(AF_INET, SOCK_STREAM, 0)) \
    A(connect(other, (void *)&to, sizeof to)) A(accept(server, 0, 0)) \
    A(accept4(server, 0, 0, 0)) A(sendfile(fd, file, 0, 1)) A(splice(fd, 0, 93, 0, 1, 0)) \
    A(sockatmark(fd)) A(close_range(90, 91, 0)) A(syscall(SYS_write, fd, b, 1)) \
    A(syscall(SYS_poll, &p, 1, 0)) A(syscall(SYS_recvfrom, fd, b, 1, MSG_DONTWAIT, 0, 0)) \
    A(syscall(SYS_epoll_wait, set, &e, 1, 0)) A(close(fd))

#define A(call) #call,
static const char *names[] = {CALLS};
#undef A

static void *thread_of(void *which) {
    char b[4] = "";
    struct iovec v = {b, 1};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec none = {0};
    struct timeval zero = {0};
    struct epoll_event e = {.events = EPOLLIN};
    fd_set in;
    FD_ZERO(&in); FD_SET(fd, &in);
    int n = 1, file = open("/dev/zero", O_RDONLY), count = 0;
    socklen_t len = sizeof n, size = sizeof(struct sockaddr_in);
    struct sockaddr_in any = at("0.0.0.0", 0), to = at(peer_ip(), 7001);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
#define A(call) if (count++ == (intptr_t)which) call;
    CALLS
#undef A
    close_range(92, 99, 0);
    return 0;
}

/* Waits that are cancelled from outside. */
static void *waits(void *which) {
    char b[4];
    struct pollfd p = {fd, POLLIN, 0};
    struct epoll_event e;
    switch ((intptr_t)which) {
    case 0: recv(fd, b, 4, 0); break;
    case 1: poll(&p, 1, 2000); break;
    case 2: epoll_wait(set, &e, 1, 2000); break;
    case 3: accept(server, 0, 0); break;
    case 4: syscall(SYS_poll, &p, 1, 200); break;
    case 5: syscall(SYS_recvfrom, fd, b, 4, 0, 0, 0); break;
    }
    return 0;
}

int main(void) {
    server = listener(8371);
    for (int i = 0; i < sizeof names / sizeof *names; i++) {
        struct epoll_event e = {.events = EPOLLIN};
        fd = tcp(7001), other = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
        nonblocking(server);
        pthread_t thread;
        void *left;
        pthread_create(&thread, 0, thread_of, (void *)(intptr_t)i);
        pthread_join(thread, &left);
        NOTE("%s: %s", names[i], left == PTHREAD_CANCELED ? "cancelled" : "goes on");
        close(fd), close(other), close(set);
    }
    fcntl(server, F_SETFL, 0);
    fd = tcp(7001), set = epoll_create1(0);
    struct timeval t = {0, 300000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        void *left;
        long start = now_ms();
        pthread_create(&thread, 0, waits, (void *)(intptr_t)i);
        sleep_ms(50);
        pthread_cancel(thread);
        pthread_join(thread, &left);
        const char *end = left == PTHREAD_CANCELED ? "cancelled" : "goes on";
        NOTE("wait %d: %s, %s", i, end, took(start, i < 4 ? 50 : i == 4 ? 200 : 300));
    }
}
