/* A port that a program has not asked for is free again once the attempt or the connection has
 * ended, though the socket is open and still has its name; one that it has asked for is not. */
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

static int connects(int fd, int port) {
    union any peer = any_at(peer_ip(), getenv("PEER_IP6"), port);
    return connect(fd, (void *)&peer, sizeof peer);
}

static int port_of(int fd) {
    union any name;
    socklen_t len = sizeof name;
    return getsockname(fd, (void *)&name, &len) ? -1 : ntohs(name.v4.sin_port);
}

/* Of the ports that are asked for, each is used once. */
static int asked;

static int bound(void) {
    int fd = socket(family, SOCK_STREAM, 0);
    if (binds(fd, asked ? asked++ : 0)) NOTE("bind: %s", name_of(errno));
    return fd;
}

/* Another socket binds to the port, and one of another process. */
static void tried(int port) {
    int fd = socket(family, SOCK_STREAM, 0);
    SAY(binds(fd, port));
    close(fd);
    if (!fork()) {
        fd = socket(family, SOCK_STREAM, 0);
        SAY(binds(fd, port));
        _exit(0);
    }
    wait(0);
}

static void refused(void) {
    NOTE("refused");
    int fd = bound(), port = port_of(fd);
    tried(port);
    SAY(connects(fd, 7998));
    SAY(port_of(fd) == port);
    tried(port);
    SAY(connects(fd, 7998));
    SAY(connects(fd, 7001));
    SAY(port_of(fd) == port);
    close(fd);

    NOTE("refused without a wait");
    fd = bound(), port = port_of(fd), nonblocking(fd);
    SAY(connects(fd, 7998));
    struct pollfd p = {fd, POLLOUT, 0};
    poll(&p, 1, 1000);
    SAY(so_error(fd) == ECONNREFUSED);
    tried(port);
    close(fd);

    if (family == AF_INET) {
        NOTE("shut while it connects");
        const char *silent = getenv("NOBODY_IP");
        struct sockaddr_in to = at(silent, 7998);
        fd = bound(), port = port_of(fd), nonblocking(fd);
        SAY(connect(fd, (void *)&to, sizeof to));
        tried(port);
        SAY(shutdown(fd, SHUT_RDWR));
        SAY(port_of(fd) == port);
        tried(port);
        close(fd);
        fd = socket(family, SOCK_STREAM, 0), nonblocking(fd);
        SAY(connect(fd, (void *)&to, sizeof to));
        port = port_of(fd);
        SAY(shutdown(fd, SHUT_WR));
        SAY(port_of(fd) == port);
        close(fd);
    }

    NOTE("refused, bound again");
    fd = bound(), port = port_of(fd);
    SAY(connects(fd, 7998));
    SAY(binds(fd, port));
    SAY(port_of(fd) == port);
    tried(port);
    close(fd);

    NOTE("refused, listens");
    fd = bound(), port = port_of(fd);
    SAY(connects(fd, 7998));
    SAY(listen(fd, 1));
    SAY(port_of(fd) == port);
    tried(port_of(fd));
    close(fd);
}

static void ended(void) {
    char byte;
    NOTE("disconnected");
    int fd = bound(), port = port_of(fd);
    SAY(connects(fd, 7001));
    tried(port);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    SAY(connect(fd, &none, sizeof none));
    SAY(port_of(fd) == port);
    tried(port);
    close(fd);

    if (family == AF_INET6) return;
    NOTE("reset");
    fd = bound(), port = port_of(fd);
    SAY(connects(fd, 7003));
    SAY(read(fd, &byte, 1));
    int other = socket(family, SOCK_STREAM, 0);
    SAY(binds(other, port));
    SAY(listen(other, 1));
    close(fd), close(other);
}

/* A socket that two processes have. */
static void shared(void) {
    char byte;
    int go[2], done[2];
    pipe(go), pipe(done);
    NOTE("refused to the parent");
    int fd = bound(), port = port_of(fd);
    if (!fork()) {
        read(go[0], &byte, 1);
        SAY(port_of(fd) == port);
        SAY(listen(fd, 1));
        SAY(port_of(fd) == port);
        tried(port);
        write(done[1], "", 1), read(go[0], &byte, 1), _exit(0);
    }
    SAY(connects(fd, 7998));
    tried(port);
    write(go[1], "", 1), read(done[0], &byte, 1);
    tried(port);
    write(go[1], "", 1), wait(0), close(fd);

    NOTE("listened on by the child");
    fd = bound(), port = port_of(fd);
    if (!fork()) {
        SAY(listen(fd, 1));
        write(done[1], "", 1), read(go[0], &byte, 1);
        int other = accept(fd, 0, 0);
        SAY(other >= 0);
        write(done[1], "", 1), _exit(0);
    }
    read(done[0], &byte, 1);
    connects(fd, 7998);
    tried(port);
    union any own = any_at(own_ip(), getenv("OWN_IP6"), port);
    int other = socket(family, SOCK_STREAM, 0);
    SAY(connect(other, (void *)&own, sizeof own));
    write(go[1], "", 1);
    read(done[0], &byte, 1), wait(0), close(fd), close(other);
    close(go[0]), close(go[1]), close(done[0]), close(done[1]);
}

int main(void) {
    for (int i = 0; i < 2; i++) {
        family = i ? AF_INET6 : AF_INET;
        NOTE("IPv%d, a port of the kernel's", i ? 6 : 4);
        asked = 0, refused(), ended(), shared();
        NOTE("a port that was asked for");
        asked = 8620, refused(), ended(), shared();
    }
}
