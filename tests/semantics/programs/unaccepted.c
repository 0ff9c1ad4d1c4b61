/* Connections that their peer has reset before the program accepts them. */
#include "t.h"

static const char *own_ip6(void) { return getenv("OWN_IP6"); }

static int listening(int family, int port) {
    if (family == AF_INET) return listener(port);
    int fd = socket(AF_INET6, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, own_ip6(), &own.sin6_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&own, sizeof own) || listen(fd, 16)) NOTE("no listener"), exit(1);
    return fd;
}

/* A connection to the port that has been reset when this returns. */
static void come(int family, int port, const char *what) {
    int asked = tcp(7010);
    char line[128];
    const char *ip = family == AF_INET6 ? own_ip6() : "";
    int len = snprintf(line, sizeof line, "%d %s %s\n", port, what, ip);
    if (write(asked, line, len) != len) NOTE("not asked");
    while (read(asked, line, sizeof line) > 0) {}
    close(asked);
    sleep_ms(30);
}

static int accepted(int server) {
    struct timeval most = {3, 0};
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof peer;
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    int fd = OPEN(accept(server, (void *)&peer, &len));
    NOTE("family %d, address of %d bytes", peer.ss_family, (int)len);
    return fd;
}

static void reads(int fd) {
    char buf[8];
    SAY(read(fd, buf, sizeof buf));
    SAY(read(fd, buf, sizeof buf));
    SAY(read(fd, buf, sizeof buf));
    SAY(write(fd, "x", 1));
}

static void writes(int fd) {
    char buf[8];
    SAY(write(fd, "x", 1));
    SAY(write(fd, "x", 1));
    SAY(read(fd, buf, sizeof buf));
    SAY(read(fd, buf, sizeof buf));
}

static void asks(int fd) {
    char buf[8];
    int bytes = -1;
    SAY(ioctl(fd, FIONREAD, &bytes));
    SAY(bytes);
    NOTE("SO_ERROR %s", name_of(so_error(fd)));
    NOTE("SO_ERROR %s", name_of(so_error(fd)));
    SAY(read(fd, buf, sizeof buf));
    SAY(read(fd, buf, sizeof buf));
}

static void looks(int fd) {
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    SAY(getpeername(fd, (void *)&name, &len));
    SAY(getsockname(fd, (void *)&name, &len));
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("poll", p.revents);
    struct tcp_info info = {0};
    len = sizeof info;
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    SAY(info.tcpi_state);
    int one = 1;
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
}

static void shuts(int fd) {
    char buf[8];
    SAY(shutdown(fd, SHUT_WR));
    SAY(shutdown(fd, SHUT_RD));
    SAY(recv(fd, buf, sizeof buf, MSG_PEEK));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(recv(fd, buf, sizeof buf, MSG_PEEK));
}

static void waits(int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    int epoll = epoll_create1(0);
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    SAY(epoll_wait(epoll, &event, 1, 1000));
    say_poll("epoll", event.events);
    close(epoll);
}

static void (*const ways[])(int) = {reads, writes, asks, looks, shuts, waits};
static const char *const whats[] = {"rst", "reset", "finrst"};

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    int port = 8420;
    for (int family = AF_INET; family; family = family == AF_INET ? AF_INET6 : 0) {
        for (int what = 0; what < 3; what++) {
            for (int has_waited = 0; has_waited < 2; has_waited++, port++) {
                NOTE("family %d, %s, waited %d", family, whats[what], has_waited);
                int server = listening(family, port);
                struct pollfd p = {server, POLLIN, 0};
                if (has_waited) poll(&p, 1, 1);
                for (int way = 0; way < 6; way++) come(family, port, whats[what]);
                SAY(poll(&p, 1, 1000));
                say_poll("listener", p.revents);
                for (int way = 0; way < 6; way++) {
                    int fd = accepted(server);
                    ways[way](fd);
                    SAY(close(fd));
                }
                close(server);
            }
        }
    }

    /* A child accepts what has come to a listener that it has from its parent, whether the parent
     * has waited on it, and has closed it before. */
    for (int has_waited = 0; has_waited < 2; has_waited++) {
        for (int closes = 0; closes < 2; closes++, port++) {
            NOTE("child, waited %d, closes %d", has_waited, closes);
            int server = listening(AF_INET, port);
            struct pollfd p = {server, POLLIN, 0};
            if (has_waited) poll(&p, 1, 1);
            come(AF_INET, port, "reset");
            fflush(stdout);
            pid_t child = fork();
            if (!child) {
                if (closes) sleep_ms(300);
                int fd = accepted(server);
                reads(fd);
                SAY(close(fd));
                _exit(0);
            }
            if (closes) close(server);
            waitpid(child, 0, 0);
            if (!closes) close(server);
        }
    }
}
