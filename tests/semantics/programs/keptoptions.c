/* Options of listeners and datagram sockets that other processes use: after fork, exec and
 * SCM_RIGHTS. */
#include "t.h"

static const struct {
    const char *name;
    int level, option, value;
} OPTIONS[] = {
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1},
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 5000},
    {"IP_TOS", IPPROTO_IP, IP_TOS, 16},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 33},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 5},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4096},
    {"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, 1000},
    {"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK, 1},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 40000},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 7},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 3},
};
enum { COUNT = sizeof OPTIONS / sizeof *OPTIONS };

static void say(const char *what, int fd) {
    for (int i = 0; i < COUNT; i++) {
        int value = -1;
        socklen_t len = sizeof value;
        getsockopt(fd, OPTIONS[i].level, OPTIONS[i].option, &value, &len);
        NOTE("%s %s: %d", what, OPTIONS[i].name, value);
    }
    struct linger linger;
    struct timeval wait;
    socklen_t len = sizeof linger;
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len);
    NOTE("%s SO_LINGER: %d, %d", what, linger.l_onoff, linger.l_linger);
    len = sizeof wait;
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, &len);
    NOTE("%s SO_RCVTIMEO: %ld", what, (long)wait.tv_sec);
    char name[16] = "";
    len = sizeof name;
    getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len);
    NOTE("%s SO_BINDTODEVICE: %s", what, name);
}

static int made(int port) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct linger linger = {1, 3};
    struct timeval wait = {9, 0};
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    for (int i = 0; i < COUNT; i++)
        setsockopt(l, OPTIONS[i].level, OPTIONS[i].option, &OPTIONS[i].value, sizeof(int));
    setsockopt(l, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(l, SOL_SOCKET, SO_BINDTODEVICE, "ss0", 4);
    bind_to(l, own_ip(), port);
    listen(l, 16);
    return l;
}

static void serve(const char *what, int l, int port) {
    char name[64];
    int asked = ask_peer(port, "hello"), fd = accept(l, 0, 0);
    snprintf(name, sizeof name, "%s, listener,", what);
    say(name, l);
    snprintf(name, sizeof name, "%s, accepted,", what);
    say(name, fd);
    close(fd), close(asked);
}

static int made_for_datagrams(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, tos = 16, ttl = 33;
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    setsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
    struct timeval wait = {0, 200000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    bind_to(fd, own_ip(), port);
    return fd;
}

/* What an answer of the peer's to the socket brings, and which TTL the peer saw. */
static void receive(const char *what, int fd, int port) {
    char bytes[64], control[256];
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    struct sockaddr_in self = at(own_ip(), port);
    int on = 1, other = socket(AF_INET, SOCK_DGRAM, 0), value = -1;
    socklen_t len = sizeof value;
    getsockopt(fd, IPPROTO_IP, IP_TTL, &value, &len);
    NOTE("%s, datagrams, IP_TTL: %d", what, value);
    setsockopt(other, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    bind_to(other, own_ip(), port + 100);
    sendto(other, "there", 5, 0, (void *)&self, sizeof self);
    SAY(recvmsg(fd, &message, 0));
    for (struct cmsghdr *it = CMSG_FIRSTHDR(&message); it; it = CMSG_NXTHDR(&message, it))
        NOTE("with %d, %d", it->cmsg_level, it->cmsg_type);
    self.sin_port = htons(port + 100);
    sendto(fd, "back", 4, 0, (void *)&self, sizeof self);
    message.msg_controllen = sizeof control;
    SAY(recvmsg(other, &message, 0));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head) NOTE("back with a TTL of %d", *(int *)CMSG_DATA(head));
    long since = now_ms();
    alarm(10);
    SAY(recv(fd, bytes, sizeof bytes, 0));
    NOTE("%s", took(since, 200));
    alarm(0);
    close(other);
}

static void say_connection(const char *what, int fd) {
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    for (int i = 0; i < COUNT; i++) {
        int at_peer = OPTIONS[i].level == IPPROTO_TCP && OPTIONS[i].option == TCP_MAXSEG;
        int grows = OPTIONS[i].level == SOL_SOCKET && OPTIONS[i].option == SO_SNDBUF;
        if (at_peer || grows) continue;
        int value = -1;
        socklen_t len = sizeof value;
        getsockopt(fd, OPTIONS[i].level, OPTIONS[i].option, &value, &len);
        NOTE("%s, connection, %s: %d", what, OPTIONS[i].name, value);
    }
}

/* Waits on a silent connection or socket for as long as SO_RCVTIMEO says. */
static void wait_in_vain(const char *what, int fd) {
    long since = now_ms();
    char byte;
    alarm(10);
    SAY(recv(fd, &byte, 1, 0));
    NOTE("%s: %s", what, took(since, 200));
    alarm(0);
}

/* A new program uses the socket. */
static void run_new(const char *self, int fd, const char *port, const char *what) {
    if (!fork()) {
        char number[8];
        snprintf(number, sizeof number, "%d", fd);
        execl(self, self, number, port, what, (char *)0);
        _exit(1);
    }
    wait(0);
}

/* The receiver goes on when the sender has said that it has sent. */
static void send_and_tell(int way, int fd) {
    send_fd(way, fd);
    write(way, "g", 1);
}

static int receive_when_told(int way) {
    char byte;
    int fd = receive_fd(way);
    read(way, &byte, 1);
    return fd;
}

int main(int argc, char **argv) {
    if (argc > 3) {
        int fd = atoi(argv[1]), port = atoi(argv[2]);
        if (!strcmp(argv[3], "listener")) serve("new program", fd, port);
        if (!strcmp(argv[3], "datagrams")) receive("new program", fd, port);
        if (!strcmp(argv[3], "connection")) say_connection("new program", fd);
        if (!strcmp(argv[3], "silent")) wait_in_vain("new program", fd);
        return 0;
    }
    int l = made(8660), pair[2];
    if (!fork()) serve("forked", l, 8660), _exit(0);
    wait(0);
    close(l);

    l = made(8661);
    run_new(argv[0], l, "8661", "listener");
    close(l);

    for (int used = 0; used < 2; used++) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        if (!fork()) {
            l = receive_when_told(pair[1]);
            serve(used ? "sent when used" : "sent", l, 8662 + used);
            _exit(0);
        }
        l = made(8662 + used);
        if (used) serve("before it was sent", l, 8663);
        send_and_tell(pair[0], l);
        close(l);
        wait(0);
        close(pair[0]), close(pair[1]);
    }

    int fd = made_for_datagrams(8664);
    if (!fork()) receive("forked", fd, 8664), _exit(0);
    wait(0);
    close(fd);

    fd = made_for_datagrams(8665);
    run_new(argv[0], fd, "8665", "datagrams");
    /* Its user from now on. */
    SAY(recv(fd, &(char){0}, 1, 0));
    run_new(argv[0], fd, "8665", "datagrams");
    close(fd);

    fd = tcp(7010);
    for (int i = 0; i < COUNT; i++)
        if (OPTIONS[i].option % 2 == 0)
            setsockopt(fd, OPTIONS[i].level, OPTIONS[i].option, &OPTIONS[i].value, sizeof(int));
    run_new(argv[0], fd, "0", "connection");
    if (!fork()) say_connection("forked", fd), _exit(0);
    wait(0);
    close(fd);

    /* A new program, and one whose program before has already waited on the socket. */
    struct timeval limit = {0, 200000};
    int silent[] = {tcp(7010), made_for_datagrams(8667)};
    for (int i = 0; i < 2; i++) {
        setsockopt(silent[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        wait_in_vain("own", silent[i]);
        run_new(argv[0], silent[i], "0", "silent");
        if (!fork()) {
            wait_in_vain("forked", silent[i]);
            run_new(argv[0], silent[i], "0", "silent");
            _exit(0);
        }
        wait(0);
        close(silent[i]);
    }

    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (!fork()) {
        receive("sent", receive_when_told(pair[1]), 8666);
        _exit(0);
    }
    fd = made_for_datagrams(8666);
    send_and_tell(pair[0], fd);
    close(fd);
    wait(0);
    return 0;
}
