/* A socket whose attempt was refused, before and after the call that reports it: its name, what it
 * reports, and its calls. */
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

static int connects(int fd, int port) {
    union any peer = any_at(peer_ip(), getenv("PEER_IP6"), port);
    return connect(fd, (void *)&peer, sizeof peer);
}

static void name(int fd) {
    union any name;
    socklen_t len = sizeof name;
    char text[INET6_ADDRSTRLEN];
    getsockname(fd, (void *)&name, &len);
    const void *ip = family == AF_INET ? (void *)&name.v4.sin_addr : (void *)&name.v6.sin6_addr;
    inet_ntop(family, ip, text, sizeof text);
    NOTE("%s, %s", text, name.v4.sin_port ? "a port" : "no port");
}

static void look(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    poll(&p, 1, 0);
    struct tcp_info info;
    socklen_t len = sizeof info;
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    NOTE("poll %#x, state %d", p.revents, info.tcpi_state);
    name(fd);
}

static void calls(int fd) {
    char byte;
    SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
    SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
    SAY(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT));
    SAY(so_error(fd));
    look(fd);
}

static int begun(int how, int is_nonblocking) {
    int fd = socket(family, SOCK_STREAM, 0);
    union any own = any_at(how == 1 ? "0.0.0.0" : own_ip(), how == 1 ? "::" : getenv("OWN_IP6"), 0);
    if (how) SAY(bind(fd, (void *)&own, sizeof own));
    if (is_nonblocking) nonblocking(fd);
    SAY(connects(fd, 7998));
    struct pollfd p = {fd, POLLOUT, 0};
    if (is_nonblocking) poll(&p, 1, 1000);
    return fd;
}

static void refused(int how, int is_nonblocking) {
    NOTE("IPv%d, %s, %s", family == AF_INET ? 4 : 6,
         how == 0 ? "not bound" : how == 1 ? "bound to the wildcard" : "bound to an address",
         is_nonblocking ? "non-blocking" : "blocking");
    int fd = begun(how, is_nonblocking);
    look(fd), calls(fd);
    SAY(shutdown(fd, SHUT_RDWR));
    calls(fd), close(fd);

    NOTE("SO_ERROR");
    fd = begun(how, is_nonblocking);
    SAY(so_error(fd));
    look(fd), calls(fd), close(fd);

    NOTE("connected again");
    fd = begun(how, is_nonblocking);
    SAY(connects(fd, 7998)), calls(fd);
    SAY(connects(fd, 7001));
    if (is_nonblocking) {
        struct pollfd p = {fd, POLLOUT, 0};
        poll(&p, 1, 1000);
    }
    name(fd), close(fd);
    if (is_nonblocking) return;

    NOTE("in a child");
    fd = begun(how, 0);
    if (!fork()) calls(fd), connects(fd, 7001), name(fd), _exit(0);
    wait(0);
    close(fd);
}

int main(void) {
    for (int i = 0; i < 12; i++) family = i < 6 ? AF_INET : AF_INET6, refused(i / 2 % 3, i % 2);
}
