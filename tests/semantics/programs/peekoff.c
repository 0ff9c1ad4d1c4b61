/* SO_PEEK_OFF: where a look begins, of datagrams and of a stream. */
#include "t.h"
#include <netinet/in.h>

static int set(int fd, int offset) {
    return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
}

static int offset_of(int fd) {
    int offset = -77;
    socklen_t len = sizeof offset;
    return getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len) ? -78 : offset;
}

/* One look or read, what it brought, and the offset afterwards. */
static void take(int fd, int room, int flags, const char *what) {
    char buf[256];
    struct iovec in = {buf, room};
    struct msghdr message = {.msg_iov = &in, .msg_iovlen = 1};
    ssize_t n = recvmsg(fd, &message, flags | MSG_DONTWAIT);
    if (n < 0) NOTE("%s %d: %s, then %d", what, room, name_of(errno), offset_of(fd));
    else
        NOTE("%s %d: %zd %.*s%s, then %d", what, room, n,
             flags & MSG_TRUNC ? 0 : (int)(n < room ? n : room), buf,
             message.msg_flags & MSG_TRUNC ? " cut" : "", offset_of(fd));
}

#define LOOK(room) take(fd, room, MSG_PEEK, "look")
#define LOOK_LONG(room) take(fd, room, MSG_PEEK | MSG_TRUNC, "look at all")
#define READ(room) take(fd, room, 0, "read")
#define READ_LONG(room) take(fd, room, MSG_TRUNC, "read all")

static void echoed(int fd, const char *text) {
    if (send(fd, text, strlen(text), 0) < 0) NOTE("send: %s", name_of(errno));
}

/* What was sent has come back. */
static void settle(int fd) { readable(fd), sleep_ms(60); }

static int connected(int family) {
    int fd = socket(family, SOCK_DGRAM, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(7011)};
    inet_pton(AF_INET6, getenv("PEER_IP6"), &six.sin6_addr);
    if (family == AF_INET) connect_to(fd, peer_ip(), 7001);
    else connect(fd, (void *)&six, sizeof six);
    return fd;
}

static void datagrams(int family) {
    int fd = connected(family);
    NOTE("datagrams of %s", family == AF_INET ? "IPv4" : "IPv6");
    NOTE("offset %d", offset_of(fd));
    echoed(fd, "0123456789"), echoed(fd, ""), echoed(fd, "abcdef"), settle(fd);
    LOOK(4), LOOK(4);
    SAY(set(fd, 0)), NOTE("offset %d", offset_of(fd));
    LOOK(4), LOOK(4), LOOK(4), LOOK(4), LOOK(4), LOOK(4), LOOK(4), LOOK(4);
    SAY(set(fd, 0)), LOOK(10), LOOK(10), LOOK(10), LOOK(10);
    SAY(set(fd, 7)), LOOK(3), SAY(set(fd, 7)), LOOK(2), LOOK(1);
    SAY(set(fd, 10)), LOOK(10), SAY(set(fd, 11)), LOOK(10), SAY(set(fd, 16)), LOOK(10),
        SAY(set(fd, 100)), LOOK(10);
    NOTE("with MSG_TRUNC"), SAY(set(fd, 2)), LOOK_LONG(4), LOOK_LONG(4), LOOK_LONG(4);
    NOTE("reads"), SAY(set(fd, 12)), READ(4), LOOK(3), READ(4), LOOK(3), READ(40), LOOK(3);
    echoed(fd, "ghijkl"), settle(fd);
    SAY(set(fd, 4)), READ_LONG(2);
    echoed(fd, "ghijkl"), settle(fd);
    SAY(set(fd, -1)), LOOK(3), READ(3);
    SAY(set(fd, -5)), NOTE("offset %d", offset_of(fd)), SAY(set(fd, 3)), READ(3);
    NOTE("ready though there is nothing to look at");
    echoed(fd, "mno"), settle(fd), SAY(set(fd, 3));
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, 1, 0)), LOOK(3);
    struct timeval limit = {0, 60000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char buf[16];
    long since = now_ms();
    SAY(recv(fd, buf, 16, MSG_PEEK)), NOTE("%s", took(since, 60));
    SAY(send(fd, "later", 5, 0)), SAY(recv(fd, buf, 16, MSG_PEEK)),
        NOTE("offset %d", offset_of(fd));
    short half = 1;
    SAY(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &half, sizeof half));
    close(fd);
}

static void stream(void) {
    int fd = tcp(7001);
    NOTE("a stream"), NOTE("offset %d", offset_of(fd));
    echoed(fd, "0123456789abcdef"), settle(fd);
    LOOK(4), SAY(set(fd, 0)), LOOK(4), LOOK(4);
    READ(2), LOOK(4), READ(6), LOOK(2), READ(1), LOOK(40), LOOK(4);
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, 1, 0));
    SAY(set(fd, 3)), LOOK(2), READ(40), LOOK(2);
    echoed(fd, "ghijkl"), settle(fd);
    SAY(set(fd, 2)), LOOK_LONG(3), LOOK_LONG(3), LOOK_LONG(3);
    SAY(set(fd, 2)), READ_LONG(3), LOOK(2);
    SAY(set(fd, -1)), LOOK(2);
    NOTE("beyond what is there"), SAY(set(fd, 3));
    struct timeval limit = {0, 60000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char buf[16];
    long since = now_ms();
    SAY(recv(fd, buf, 16, MSG_PEEK)), NOTE("%s", took(since, 60));
    SAY(send(fd, "mnop", 4, 0)), SAY(recv(fd, buf, 16, MSG_PEEK)), NOTE("%.4s", buf),
        NOTE("offset %d", offset_of(fd));
    SAY(set(fd, 1)), SAY(recv(fd, buf, 4, MSG_PEEK | MSG_WAITALL)),
        NOTE("offset %d", offset_of(fd));
    SAY(shutdown(fd, SHUT_WR)), sleep_ms(60), SAY(set(fd, 5));
    LOOK(8), LOOK(8), SAY(set(fd, 7)), LOOK(8), SAY(set(fd, 0)), LOOK(8);
    close(fd);
}

/* What a listener is given its connections have. */
static void accepted(void) {
    int server = listener(8401);
    NOTE("offset %d", offset_of(server)), SAY(set(server, 3));
    int control = ask_peer(8401, "hello"), fd = accept(server, 0, 0);
    readable(fd), NOTE("accepted"), NOTE("offset %d", offset_of(fd)), LOOK(4), LOOK(4);
    close(fd), close(server), close(control);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    NOTE("before it is connected"), SAY(set(fd, 2)), SAY(connect_to(fd, peer_ip(), 7002)),
        readable(fd);
    LOOK(2), LOOK(2), close(fd);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    datagrams(AF_INET), datagrams(AF_INET6), stream(), accepted();
    return 0;
}
