/* Datagrams and port 0. */
#include "t.h"
#include <netinet/in.h>

static ssize_t send_at(int fd, const char *text, const char *ip, int port) {
    struct sockaddr_in to = at(ip, port);
    return sendto(fd, text, strlen(text), 0, (void *)&to, sizeof to);
}

static struct sockaddr_in6 at6(const char *ip, int port) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, ip, &to.sin6_addr);
    return to;
}

static void names(int fd) {
    struct sockaddr_in6 addr;
    socklen_t len = sizeof addr;
    SAY(getpeername(fd, (void *)&addr, &len));
    len = sizeof addr;
    SAY(getsockname(fd, (void *)&addr, &len)), NOTE("%s", addr.sin6_port ? "a port" : "no port");
}

static void echoes(int fd) {
    char buf[16];
    readable(fd);
    SAY(recv(fd, buf, sizeof buf, MSG_DONTWAIT));
}

/* A disconnect gives back a port that the kernel has chosen; whoever sends has one, whatever comes
 * of it. */
static void given_back(int fd, int named) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    NOTE("given back"), SAY(named), names(fd);
    for (int flags = 0; flags <= MSG_OOB; flags += MSG_OOB) {
        SAY(connect(fd, &none, sizeof none)), names(fd);
        SAY(send(fd, "x", 1, flags)), names(fd);
    }
}

/* One that has been disconnected may be bound, if its port was chosen for it. */
static void bound_again(int family, int port) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int is_v6 = family == AF_INET6, epoll = epoll_create1(0);
    struct sockaddr_in peer4 = at(peer_ip(), 7001), own4 = at(own_ip(), port), any4 = own4;
    struct sockaddr_in6 peer6 = at6(getenv("PEER_IP6"), 7001);
    struct sockaddr_in6 own6 = at6(getenv("OWN_IP6"), port), any6 = own6;
    struct sockaddr *peer = is_v6 ? (void *)&peer6 : &peer4, *own = is_v6 ? (void *)&own6 : &own4;
    struct sockaddr *any = is_v6 ? (void *)&any6 : &any4;
    socklen_t len = is_v6 ? sizeof own6 : sizeof own4;
    struct epoll_event event = {.events = EPOLLIN};
    any4.sin_port = any6.sin6_port = 0;
    for (int was_bound = 0; was_bound < 2; was_bound++) {
        int fd = socket(family, SOCK_DGRAM, 0);
        NOTE("bound again, %s before", was_bound ? "bound" : "not bound");
        SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
        if (was_bound) SAY(bind(fd, any, len));
        SAY(connect(fd, peer, len));
        SAY(bind(fd, own, len));
        SAY(connect(fd, &none, sizeof none)), names(fd);
        SAY(bind(fd, own, len)), names(fd);
        SAY(bind(fd, own, len));
        /* The peer answers by IPv4 alone. */
        if (!is_v6) {
            SAY(send_at(fd, "xyz", peer_ip(), 7001));
            SAY(epoll_wait(epoll, &event, 1, 1000)), echoes(fd);
        }
        SAY(connect(fd, peer, len));
        SAY(connect(fd, &none, sizeof none)), names(fd);
        SAY(bind(fd, own, len));
        close(fd);
    }
    close(epoll);
}

int main(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(send_at(fd, "x", peer_ip(), 0)), names(fd);
    SAY(bind_to(fd, own_ip(), 0)), names(fd);
    SAY(send_at(fd, "x", peer_ip(), 0)), SAY(send_at(fd, "xy", peer_ip(), 7001)), echoes(fd);
    close(fd), fd = socket(AF_INET, SOCK_DGRAM, 0);
    NOTE("connected"), SAY(connect_to(fd, peer_ip(), 0)), names(fd);
    SAY(send(fd, "x", 1, 0)), readable(fd), SAY(so_error(fd));
    SAY(send_at(fd, "xy", peer_ip(), 7001));
    SAY(connect_to(fd, peer_ip(), 7001)), names(fd), SAY(send(fd, "xyz", 3, 0)), echoes(fd);
    SAY(connect_to(fd, peer_ip(), 0)), names(fd);
    close(fd), fd = socket(AF_INET, SOCK_DGRAM, 0);
    given_back(fd, bind_to(fd, "0.0.0.0", 0));
    close(fd), fd = socket(AF_INET, SOCK_DGRAM, 0);
    given_back(fd, connect_to(fd, peer_ip(), 7001));
    close(fd), fd = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 peer = at6(getenv("PEER_IP6"), 7001);
    given_back(fd, connect(fd, (void *)&peer, sizeof peer));
    close(fd), fd = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 to = at6(getenv("PEER_IP6"), 0);
    NOTE("IPv6"), SAY(sendto(fd, "x", 1, 0, (void *)&to, sizeof to)), names(fd);
    SAY(connect(fd, (void *)&to, sizeof to)), names(fd), SAY(send(fd, "x", 1, 0)), readable(fd),
        SAY(so_error(fd));
    close(fd), fd = socket(AF_INET6, SOCK_DGRAM, 0);
    bound_again(AF_INET, 8765), bound_again(AF_INET6, 8766);
    NOTE("urgent"), SAY(sendto(fd, "x", 1, MSG_OOB, (void *)&peer, sizeof peer));
    peer = at6("::ffff:127.0.0.1", 7001);
    SAY(sendto(fd, "x", 1, MSG_OOB, (void *)&peer, sizeof peer));
    close(fd);
    return 0;
}
