/* A socket whose attempt to connect has failed: it can be bound before a connect has returned
 * that, if its port was not asked for, but not listen; and another program that gets it can use
 * it. */
#include "t.h"
#include <spawn.h>

enum { SOCKET = 50 };
static char self[256];
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

static int connects(int fd, int port) {
    union any peer = any_at(peer_ip(), getenv("PEER_IP6"), port);
    return connect(fd, (void *)&peer, sizeof peer);
}

static int port_of(int fd) {
    union any name;
    socklen_t len = sizeof name;
    return getsockname(fd, (void *)&name, &len) ? -1 : ntohs(name.v4.sin_port);
}

static void say_ready(int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    poll(&p, 1, 0);
    say_poll("ready", p.revents);
}

/* `port`: that which is asked for. */
static int failed(int port) {
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct pollfd p = {fd, POLLOUT, 0};
    if (port) binds(fd, port);
    SAY(connects(fd, 7998));
    poll(&p, 1, 5000);
    return fd;
}

/* Over IPv6 the peer refuses it. */
static void connected(int fd, int port) {
    struct pollfd p = {fd, POLLOUT, 0};
    char byte;
    SAY(connects(fd, 7001));
    poll(&p, 1, 1000);
    say_ready(fd);
    SAY(so_error(fd));
    SAY(port_of(fd) == port);
    SAY(send(fd, "x", 1, MSG_NOSIGNAL)), readable(fd);
    SAY(read(fd, &byte, 1));
    close(fd);
}

static void bound(int port) {
    struct epoll_event event = {EPOLLIN | EPOLLOUT};
    int epoll = epoll_create1(0);
    NOTE("bound, SO_ERROR");
    int fd = failed(0);
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    SAY(binds(fd, port));
    SAY(port_of(fd) == port);
    SAY(binds(fd, port + 1));
    say_ready(fd);
    SAY(epoll_wait(epoll, &event, 1, 0)), say_poll("epoll", event.events);
    SAY(so_error(fd) == ECONNREFUSED);
    say_ready(fd);
    SAY(recv(fd, &event, 1, 0));
    SAY(send(fd, &event, 1, MSG_NOSIGNAL));
    SAY(listen(fd, 1));
    SAY(connects(fd, 7001));
    say_ready(fd);
    connected(fd, port);
    SAY(epoll_wait(epoll, &event, 1, 0)), close(epoll);

    NOTE("bound, no SO_ERROR");
    fd = failed(0), port += 2;
    SAY(binds(fd, port));
    SAY(connects(fd, 7001));
    connected(fd, port);

    NOTE("bound, listens");
    fd = failed(0), port++;
    SAY(binds(fd, port));
    SAY(listen(fd, 1));
    SAY(connects(fd, 7001));
    SAY(listen(fd, 1));
    SAY(port_of(fd) == port);
    int other = socket(family, SOCK_STREAM, 0);
    union any own = any_at(own_ip(), getenv("OWN_IP6"), port);
    SAY(connect(other, (void *)&own, sizeof own));
    close(accept(fd, 0, 0)), close(other), close(fd);

    NOTE("bound to a port of the kernel's");
    fd = failed(0), port++;
    SAY(binds(fd, 0));
    int chosen = port_of(fd);
    SAY(binds(fd, port));
    SAY(connects(fd, 7001));
    SAY(port_of(fd) == chosen);
    SAY(binds(fd, port));
    connected(fd, port);

    NOTE("a port that is taken");
    other = socket(family, SOCK_STREAM, 0), port++;
    SAY(binds(other, port));
    fd = failed(0);
    SAY(binds(fd, port));
    SAY(so_error(fd) == ECONNREFUSED);
    close(other);
    SAY(binds(fd, port));
    SAY(connects(fd, 7001));
    connected(fd, port);

    NOTE("a port that was asked for");
    fd = failed(++port);
    SAY(binds(fd, port + 1));
    SAY(listen(fd, 1));
    SAY(so_error(fd) == ECONNREFUSED);
    SAY(listen(fd, 1));
    SAY(connects(fd, 7001));
    SAY(binds(fd, port + 1));
    connected(fd, port);
}

static void use(int fd, int was) {
    char byte;
    if (was > 0) SAY(port_of(fd) == was);
    SAY(connects(fd, 7001));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(read(fd, &byte, 1));
    if (was > 0) SAY(port_of(fd) == was);
}

/* `port`: -1 if it is not to be bound. Its name goes to `name`. */
static int refused(int port, char name[8]) {
    int fd = socket(family, SOCK_STREAM, 0);
    if (port >= 0) SAY(binds(fd, port));
    SAY(connects(fd, 7998));
    snprintf(name, 8, "%d", port < 0 ? port : port_of(fd));
    return fd;
}

static void passed(const char *way, int asked) {
    pid_t child;
    char port[8], what[8];
    char *words[] = {self, what, port, 0};
    extern char **environ;
    int pair[2];
    NOTE("passed by %s, %s", way, asked > 0 ? "a port" : asked ? "not bound" : "port 0");
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    int fd = refused(asked, port);
    snprintf(what, sizeof what, "%d", family);
    if (!strcmp(way, "message")) send_fd(pair[0], fd), close(fd);
    else dup2(fd, SOCKET), close(fd);
    if (!strcmp(way, "posix_spawn")) posix_spawn(&child, self, 0, 0, words, environ);
    else child = fork();
    if (!child && !strcmp(way, "exec")) execv(self, words);
    if (!child) use(*way == 'f' ? SOCKET : receive_fd(pair[1]), atoi(port)), _exit(0);
    close(SOCKET), waitpid(child, 0, 0), close(pair[0]), close(pair[1]);
}

static void made_and_passed(int asked) {
    NOTE("made and passed by exec");
    if (!fork()) {
        char port[8], what[8];
        int fd = refused(asked, port);
        snprintf(what, sizeof what, "%d", family);
        dup2(fd, SOCKET), close(fd);
        execl(self, self, what, port, NULL);
    }
    wait(0);
}

int main(int argc, char **argv) {
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    if (argc > 2) return family = atoi(argv[1]), use(SOCKET, atoi(argv[2])), 0;
    int port = 8910;
    for (int i = 0; i < 2; i++, port += 20) {
        family = i ? AF_INET6 : AF_INET;
        NOTE("IPv%d", i ? 6 : 4);
        bound(port);
        int asked[] = {-1, 0, port + 10};
        const char *ways[] = {"fork", "exec", "posix_spawn", "message"};
        for (int n = 0; n < 3; n++) {
            for (int way = 0; way < 4; way++) passed(ways[way], asked[n] + (n == 2) * way);
            made_and_passed(asked[n] + (n == 2) * 4);
        }
    }
}
