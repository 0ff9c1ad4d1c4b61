/* The port of a connection that its program does not choose: of the range of the socket, or else of
 * the system's as it is at that moment. */
#include "t.h"

#define LOCAL_PORT_RANGE 51
#define FILE_OF_RANGE "/proc/sys/net/ipv4/ip_local_port_range"

static int port_of(int fd) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    getsockname(fd, (void *)&name, &len);
    return ntohs(name.sin_port);
}

static int ranged(int type, unsigned first, unsigned last) {
    int fd = socket(AF_INET, type, 0);
    unsigned range = last << 16 | first;
    setsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, sizeof range);
    return fd;
}

/* Connects by a port of a range that the socket has. */
static void within(const char *what, int type, unsigned first, unsigned last) {
    int fd = ranged(type, first, last);
    if (connect_to(fd, peer_ip(), type == SOCK_STREAM ? 7001 : 7002))
        NOTE("%s: %s", what, name_of(errno));
    else
        NOTE("%s: %s", what,
             port_of(fd) >= (int)first && port_of(fd) <= (int)last ? "there" : "elsewhere");
    close(fd);
}

/* As within(), of a socket that has got its port by a bind. */
static void bound_within(const char *what, int type, const char *ip, unsigned port) {
    int fd = ranged(type, port, port);
    if (bind_to(fd, ip, 0)) NOTE("%s: bind: %s", what, name_of(errno));
    int answer = connect_to(fd, peer_ip(), type == SOCK_STREAM ? 7001 : 7002);
    NOTE("%s: %s, port %d", what, answer ? name_of(errno) : "connected", port_of(fd));
    close(fd);
}

static void set_range(const char *text) {
    int fd = open(FILE_OF_RANGE, O_WRONLY);
    if (write(fd, text, strlen(text)) < 0) NOTE("write: %s", name_of(errno));
    close(fd);
    /* The kernel needs none of it. */
    sleep_ms(300);
}

static void all_within(const char *what, int type, int first, int last) {
    int there = 0, kept[40];
    for (int at = 0; at < 40; at++) {
        kept[at] = socket(AF_INET, type, 0);
        if (connect_to(kept[at], peer_ip(), type == SOCK_STREAM ? 7001 : 7002))
            NOTE("%s: %s", what, name_of(errno));
        there += port_of(kept[at]) >= first && port_of(kept[at]) <= last;
    }
    NOTE("%s: %d of 40", what, there);
    for (int at = 0; at < 40; at++) close(kept[at]);
}

/* A listener to which the system gives a port of its range. */
static void listen_within(const char *what, int first, int last) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(fd, 8)) NOTE("%s: %s", what, name_of(errno));
    struct pollfd look = {.fd = fd, .events = POLLIN};
    poll(&look, 1, 0);
    NOTE("%s: %s", what, port_of(fd) >= first && port_of(fd) <= last ? "there" : "elsewhere");
    close(fd);
}

/* Connections do not get the port of a listener, though a connection from it would be another. */
static void beside_a_listener(const char *what, int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind_to(fd, "0.0.0.0", port) || listen(fd, 8)) NOTE("%s: %s", what, name_of(errno));
    struct pollfd look = {.fd = fd, .events = POLLIN};
    poll(&look, 1, 0);
    within(what, SOCK_STREAM, port, port);
    within("and its neighbour", SOCK_STREAM, port, port + 1);
    close(fd);
}

/* A port of the system's range, each for one socket. */
static void by_one_port(const char *what, int first) {
    NOTE("%s", what);
    within("one port", SOCK_STREAM, first, first);
    within("one port for datagrams", SOCK_DGRAM, first, first);
    bound_within("a bound one", SOCK_STREAM, "0.0.0.0", first + 1);
    bound_within("one with an address", SOCK_STREAM, own_ip(), first + 2);
    bound_within("datagrams of a bound one", SOCK_DGRAM, "0.0.0.0", first + 3);
    beside_a_listener("a listener's", first + 10);
}

int main(void) {
    char before[64] = "";
    int fd = open(FILE_OF_RANGE, O_RDONLY);
    SAY(read(fd, before, sizeof before - 1) > 0);
    close(fd);
    /* Before others, which might have one of these ports. */
    by_one_port("the range at the start", 40100);
    all_within("connections", SOCK_STREAM, 32768, 60999);
    set_range("20000 20999");
    by_one_port("another range", 20010);
    all_within("connections by another range", SOCK_STREAM, 20000, 20999);
    all_within("datagrams by it", SOCK_DGRAM, 20000, 20999);
    listen_within("a listener by it", 20000, 20999);
    set_range("40000 50000");
    all_within("connections by a part", SOCK_STREAM, 40000, 50000);
    all_within("datagrams by a part", SOCK_DGRAM, 40000, 50000);
    set_range("45000 45199");
    all_within("connections by a small part", SOCK_STREAM, 45000, 45199);
    all_within("datagrams by a small part", SOCK_DGRAM, 45000, 45199);
    listen_within("a listener by a small part", 45000, 45199);
    set_range("1024 65535");
    all_within("connections by more", SOCK_STREAM, 1024, 65535);
    set_range(before);
    all_within("connections by the former range", SOCK_STREAM, 32768, 60999);
    return 0;
}
