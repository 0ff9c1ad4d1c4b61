/* Datagrams that are larger than the send buffer. */
#include "t.h"
#include <netinet/udp.h>

static const char *at_length(int fd, int len, void *to, socklen_t to_len) {
    static char bytes[65536];
    errno = 0;
    ssize_t sent = sendto(fd, bytes, len, 0, to, to_len);
    return sent == len ? "sent" : sent < 0 ? name_of(errno) : "cut";
}

static void many(int fd, void *to, socklen_t to_len) {
    int lengths[] = {1400,  3000,  5000,  5904,  5905,  5913,  6000,
                     10344, 10345, 20000, 51792, 51793, 60000, 65507};
    for (int i = 0; i < 14; i++)
        NOTE("  %d: %s", lengths[i], at_length(fd, lengths[i], to, to_len));
}

static void with(int family, int asked, void *to, socklen_t to_len) {
    NOTE("family %d, buffer %d", family, asked);
    int fd = socket(family, SOCK_DGRAM, 0), segment = 1400;
    struct timeval limit = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (asked) SAY(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &asked, sizeof asked));
    many(fd, to, to_len);
    SAY(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment));
    NOTE("cut into 1400 bytes each: %s", at_length(fd, 60000, to, to_len));
    SAY(close(fd));
}

/* The first datagram of a socket that does not wait. */
static void first(int len, void *to, socklen_t to_len) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), asked = 1;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &asked, sizeof asked);
    NOTE("at once, %d: %s", len, at_length(fd, len, to, to_len));
    SAY(close(fd));
}

static void to_ourselves(void) {
    char buf[65536];
    NOTE("to our own address");
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0), asked = 1;
    struct sockaddr_in own = at(getenv("OWN_IP"), 7165);
    SAY(bind(in, (void *)&own, sizeof own));
    SAY(setsockopt(out, SOL_SOCKET, SO_SNDBUF, &asked, sizeof asked));
    NOTE("60000: %s", at_length(out, 60000, &own, sizeof own));
    readable(in);
    SAY(recv(in, buf, sizeof buf, MSG_DONTWAIT));
    SAY(close(in));
    SAY(close(out));
}

static void in_pieces(void) {
    static char bytes[3000];
    NOTE("in pieces");
    int fd = socket(AF_INET, SOCK_DGRAM, 0), asked = 1;
    struct sockaddr_in to = at(peer_ip(), 7004);
    SAY(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &asked, sizeof asked));
    SAY(connect(fd, (void *)&to, sizeof to));
    SAY(send(fd, bytes, 1000, MSG_MORE));
    SAY(send(fd, bytes, 1000, MSG_MORE));
    SAY(send(fd, bytes, 1000, 0));
    SAY(send(fd, bytes, 10, 0));
    SAY(close(fd));
}

int main(void) {
    struct sockaddr_in to = at(peer_ip(), 7004);
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(7011)};
    inet_pton(AF_INET6, getenv("PEER_IP6"), &to6.sin6_addr);
    int sizes[] = {1, 4000, 20000, 0};
    for (int i = 0; i < 4; i++) {
        with(AF_INET, sizes[i], &to, sizeof to);
        with(AF_INET6, sizes[i], &to6, sizeof to6);
    }
    first(5000, &to, sizeof to);
    first(60000, &to, sizeof to);
    to_ourselves();
    in_pieces();
}
