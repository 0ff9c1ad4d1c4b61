/* A socket whose use has ended is used otherwise: after a refusal, a disconnect, a shut
 * listener. */
#include "t.h"

static int refused(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, peer_ip(), 7999));
    return fd;
}

static void echo(int fd) {
    char b[4];
    SAY(send(fd, "abc", 3, MSG_NOSIGNAL));
    SAY(recv(fd, b, 3, MSG_WAITALL));
}

static void after_refusal(void) {
    NOTE("after a refusal");
    int fd = refused();
    SAY(bind_to(fd, own_ip(), 8512));
    SAY(listen(fd, 5));
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, 1, 0));
    int asked = ask_peer(8512, "hello");
    SAY(poll(&p, 1, 500));
    close(asked), close(fd);
    fd = refused();
    SAY(listen(fd, 5));
    close(fd);
    fd = refused();
    SAY(connect_to(fd, peer_ip(), 7001));
    echo(fd);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, "127.0.0.1", 7999));
    SAY(connect_to(fd, peer_ip(), 7001));
    echo(fd);
    close(fd);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    bind_to(l, "127.0.0.1", 8513), listen(l, 5);
    fd = refused();
    SAY(connect_to(fd, "127.0.0.1", 8513));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect_to(fd, "127.0.0.1", 8513));
    close(fd), close(l);
}

static void nobody_alone(void) {
    NOTE("addresses of many, and port 0");
    const char *many[] = {"10.91.7.255", "224.0.0.9", "255.255.255.255"};
    for (int i = 0; i < 3; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        SAY(connect_to(fd, many[i], 7001));
        SAY(connect_to(fd, peer_ip(), 7001));
        close(fd);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, peer_ip(), 0));
    SAY(connect_to(fd, peer_ip(), 7001));
    close(fd);
}

static void watched(void) {
    NOTE("watched");
    int set = epoll_create1(0), fd = tcp(7001);
    struct epoll_event e = {.events = EPOLLIN}, got;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
    SAY(connect(fd, &none, sizeof none));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(send(fd, "abc", 3, 0));
    SAY(epoll_wait(set, &got, 1, 1000));
    NOTE("%d", got.events == EPOLLIN);
    int copy = dup(fd);
    SAY(connect(copy, &none, sizeof none));
    SAY(connect_to(fd, peer_ip(), 7001));
    echo(copy);
    close(fd), close(copy), close(set);
}

static void disconnected(void) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    struct pollfd p;
    char b[4];
    NOTE("a connection");
    int fd = tcp(7001);
    SAY(connect(fd, &none, sizeof none));
    SAY(getpeername(fd, (void *)&name, &len));
    SAY(send(fd, "abc", 3, MSG_NOSIGNAL));
    SAY(send(fd, "abc", 3, MSG_NOSIGNAL));
    SAY(recv(fd, b, 3, 0));
    p = (struct pollfd){fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 0));
    say_poll("ended", p.revents);
    SAY(connect(fd, &none, sizeof none));
    SAY(connect_to(fd, peer_ip(), 7001));
    echo(fd);
    close(fd);
    NOTE("a listener");
    int l = listener(8506);
    nonblocking(l);
    p = (struct pollfd){l, POLLIN, 0};
    SAY(poll(&p, 1, 0));
    SAY(connect(l, &none, sizeof none));
    SAY(accept(l, 0, 0));
    SAY(poll(&p, 1, 0));
    say_poll("paused", p.revents);
    SAY(listen(l, 16));
    SAY(accept(l, 0, 0));
    int asked = ask_peer(8506, "hello");
    SAY(poll(&p, 1, 500));
    OPEN(accept(l, 0, 0));
    close(asked), close(l);
    NOTE("an attempt");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect_to(fd, getenv("NOBODY_IP"), 7001));
    SAY(connect(fd, &none, sizeof none));
    SAY(connect_to(fd, peer_ip(), 7001));
    close(fd);
}

static void *shutter(void *fd) {
    sleep_ms(200);
    shutdown((intptr_t)fd, SHUT_RDWR);
    return 0;
}

static void shut(void) {
    struct pollfd p;
    NOTE("a listener");
    int l = listener(8503);
    nonblocking(l);
    SAY(shutdown(l, SHUT_WR));
    p = (struct pollfd){l, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 0));
    SAY(shutdown(l, SHUT_RD));
    SAY(poll(&p, 1, 0));
    say_poll("shut", p.revents);
    SAY(accept(l, 0, 0));
    SAY(shutdown(l, SHUT_RD));
    SAY(listen(l, 5));
    SAY(poll(&p, 1, 0));
    SAY(accept(l, 0, 0));
    int asked = ask_peer(8503, "hello");
    SAY(poll(&p, 1, 500));
    OPEN(accept(l, 0, 0));
    close(asked), close(l);
    NOTE("an attempt");
    int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect_to(c, getenv("NOBODY_IP"), 7001));
    SAY(shutdown(c, SHUT_RDWR));
    p = (struct pollfd){c, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 100));
    say_poll("shut", p.revents);
    SAY(so_error(c));
    SAY(so_error(c));
    SAY(connect_to(c, peer_ip(), 7001));
    close(c);
    NOTE("by another thread");
    pthread_t thread;
    c = socket(AF_INET, SOCK_STREAM, 0);
    pthread_create(&thread, 0, shutter, (void *)(intptr_t)c);
    long start = now_ms();
    SAY(connect_to(c, getenv("NOBODY_IP"), 7001));
    NOTE("%s", took(start, 200));
    pthread_join(thread, 0), close(c);
    l = listener(8504);
    pthread_create(&thread, 0, shutter, (void *)(intptr_t)l);
    SAY(accept(l, 0, 0));
    pthread_join(thread, 0), close(l);
}

int main(void) {
    after_refusal();
    nobody_alone();
    disconnected();
    watched();
    shut();
    return 0;
}
