/* A UDP socket that was disconnected and is bound again: its error, its ends and the threads that
 * wait for it stay. */
#include "t.h"

static int family;

static union any {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} any_at(const char *ip, const char *ip6, int port) {
    union any addr = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
    inet_pton(AF_INET6, ip6, &addr.v6.sin6_addr);
    if (family == AF_INET) addr.v4 = at(ip, port);
    return addr;
}

static int binds(int fd, int port) {
    union any own = any_at(own_ip(), getenv("OWN_IP6"), port);
    return bind(fd, (void *)&own, sizeof own);
}

static int connected(int port) {
    struct timeval wait = {1, 500000};
    int fd = socket(family, SOCK_DGRAM, 0);
    union any peer = any_at(peer_ip(), getenv("PEER_IP6"), port);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    SAY(connect(fd, (void *)&peer, sizeof peer));
    return fd;
}

static void disconnect(int fd) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    SAY(connect(fd, &none, sizeof none));
}

static void say_ready(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    poll(&p, 1, 0);
    say_poll("ready", p.revents);
}

/* Sends from another socket. (The kernel's IPv6 sockets hear only their last peer then.) */
static void hear(int fd, int port) {
    char got[16];
    if (family == AF_INET6) return;
    int other = socket(family, SOCK_DGRAM, 0);
    union any own = any_at(own_ip(), getenv("OWN_IP6"), port);
    binds(other, 0);
    SAY(sendto(other, "hello", 5, 0, (void *)&own, sizeof own));
    if (fd >= 0) SAY(recv(fd, got, sizeof got, 0));
    close(other);
}

static void errors(int port) {
    char byte;
    for (int how = 0; how < 3; how++, port++) {
        NOTE("a pending error, %d", how);
        int fd = connected(7998);
        SAY(send(fd, "x", 1, 0));
        sleep_ms(100);
        disconnect(fd);
        say_ready(fd);
        SAY(binds(fd, port));
        say_ready(fd);
        if (how == 0) SAY(so_error(fd) == ECONNREFUSED);
        if (how == 1) SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
        if (how < 2) SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
        union any peer = any_at(peer_ip(), getenv("PEER_IP6"), 7998);
        SAY(sendto(fd, "x", 1, 0, (void *)&peer, sizeof peer));
        hear(fd, port);
        close(fd);
    }
}

static void ends(int port) {
    char byte;
    union any peer = any_at(peer_ip(), getenv("PEER_IP6"), 7001);
    for (int how = 0; how < 3; how++, port++) {
        NOTE("shut down before, %d", how);
        int fd = connected(7001);
        SAY(shutdown(fd, how));
        disconnect(fd);
        say_ready(fd);
        SAY(binds(fd, port));
        say_ready(fd);
        SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
        if (how != SHUT_WR) SAY(recv(fd, &byte, 1, 0));
        SAY(sendto(fd, "x", 1, MSG_NOSIGNAL, (void *)&peer, sizeof peer));
        close(fd);
    }
}

static int waited, result;
static char text[16];
static void *receives(void *unused) {
    result = recv(waited, text, sizeof text, 0);
    return 0;
}
static void *polls(void *unused) {
    struct pollfd p = {waited, POLLIN, 0};
    result = poll(&p, 1, 1500);
    return 0;
}

static void waits(int port) {
    for (int how = 0; how < 2; how++, port++) {
        pthread_t thread;
        NOTE("a thread waits in %s", how ? "poll" : "recv");
        waited = connected(7001);
        pthread_create(&thread, 0, how ? polls : receives, 0), sleep_ms(50);
        disconnect(waited), sleep_ms(20);
        SAY(binds(waited, port)), sleep_ms(20);
        hear(-1, port);
        pthread_join(thread, 0);
        SAY(result);
        close(waited);
    }
    NOTE("an epoll set watches");
    struct epoll_event event = {EPOLLIN | EPOLLET};
    int epoll = epoll_create1(0), fd = connected(7001);
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    disconnect(fd);
    SAY(binds(fd, port));
    hear(-1, port);
    SAY(epoll_wait(epoll, &event, 1, 1000));
    SAY(recv(fd, text, sizeof text, MSG_DONTWAIT));
    SAY(epoll_wait(epoll, &event, 1, 50));
    close(fd), close(epoll);
}

static void taken(int port) {
    NOTE("a port that is taken");
    int other = socket(family, SOCK_DGRAM, 0), fd = connected(7001);
    union any peer = any_at(peer_ip(), getenv("PEER_IP6"), family == AF_INET ? 7001 : 7011);
    char got[16];
    SAY(binds(other, port));
    disconnect(fd);
    SAY(binds(fd, port));
    SAY(sendto(fd, "x", 1, 0, (void *)&peer, sizeof peer));
    SAY(recv(fd, got, sizeof got, 0));
    close(other), close(fd);

    NOTE("a port of the kernel's, and again");
    fd = connected(7001);
    disconnect(fd);
    SAY(binds(fd, 0));
    SAY(binds(fd, port));
    union any own;
    socklen_t len = sizeof own;
    getsockname(fd, (void *)&own, &len);
    hear(fd, ntohs(own.v4.sin_port));
    SAY(connect(fd, (void *)&peer, sizeof peer));
    disconnect(fd);
    SAY(binds(fd, port));
    hear(fd, port);
    SAY(binds(fd, port));
    close(fd);

    NOTE("the loopback");
    fd = connected(7001);
    disconnect(fd);
    union any loop = any_at("127.0.0.1", "::1", port);
    SAY(bind(fd, (void *)&loop, sizeof loop));
    SAY(sendto(fd, "loop", 4, 0, (void *)&loop, sizeof loop));
    if (family == AF_INET) SAY(recv(fd, got, sizeof got, 0));
    close(fd);
}

int main(void) {
    int port = 8960;
    for (int i = 0; i < 2; i++, port += 20) {
        family = i ? AF_INET6 : AF_INET;
        NOTE("IPv%d", i ? 6 : 4);
        errors(port), ends(port + 3), taken(port + 6);
        if (family == AF_INET) waits(port + 7);
    }
}
