/* Local ports that nobody has asked for: of which they are, when there are no more, and who else
 * may have them. */
#include "t.h"

#define LOCAL_PORT_RANGE 51
enum { FIRST = 47110, COUNT = 10, PEER_PORT = 7014 };

static int port_of(int fd) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    return getsockname(fd, (void *)&name, &len) ? -1 : ntohs(name.sin_port);
}

static int made(int type, int first, int last) {
    int fd = socket(AF_INET, type, 0), range = last << 16 | first;
    if (setsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, sizeof range))
        NOTE("range: %s", name_of(errno));
    return fd;
}

static int is_within(int fd) { return port_of(fd) >= FIRST && port_of(fd) < FIRST + COUNT; }

static void in_a_range(int type) {
    NOTE("%s", type == SOCK_STREAM ? "streams" : "datagrams");
    int fds[COUNT], seen = 0;
    for (int i = 0; i < COUNT; i++) {
        fds[i] = made(type, FIRST, FIRST + COUNT - 1);
        SAY(connect_to(fds[i], peer_ip(), PEER_PORT));
        if (is_within(fds[i])) seen |= 1 << port_of(fds[i]) - FIRST;
    }
    NOTE("seen %x", seen);
    int more = made(type, FIRST, FIRST + COUNT - 1);
    SAY(connect_to(more, peer_ip(), PEER_PORT));
    close(more);
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    int bound = made(type, 47200, 47209);
    SAY(bind_to(bound, own_ip(), 0)), SAY(port_of(bound) / 10);
    close(bound);
    int least = made(type, 60000, 0), outside = made(type, 20000, 20010);
    SAY(connect_to(least, peer_ip(), PEER_PORT)), SAY(port_of(least) >= 60000);
    SAY(connect_to(outside, peer_ip(), PEER_PORT)), SAY(port_of(outside) > 32000);
    close(least), close(outside);
    int range = FIRST << 16 | FIRST + 1, fd = made(type, 0, 0);
    socklen_t len = sizeof range;
    SAY(setsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, sizeof range));
    SAY(setsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, 2));
    SAY(getsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, &len)), SAY(range);
    close(fd);
}

/* inet_autobind(): a datagram finds no port. */
static void none_left(void) {
    NOTE("none left");
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
        SAY(bind_to(fds[i], "0.0.0.0", 47220 + i));
    }
    struct sockaddr_in to = at(peer_ip(), 7990);
    int fd = made(SOCK_DGRAM, 47220, 47222);
    SAY(sendto(fd, "x", 1, 0, (void *)&to, sizeof to));
    SAY(send(fd, "x", 1, 0));
    SAY(port_of(fd));
    SAY(bind_to(fd, own_ip(), 0));
    close(fds[0]);
    SAY(sendto(fd, "x", 1, 0, (void *)&to, sizeof to));
    SAY(port_of(fd));
    close(fd), close(fds[1]), close(fds[2]);
}

/* A port that no earlier program has got by chance, and has in TIME-WAIT. */
static void taken(void) {
    NOTE("the same four");
    int one = 1, a = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(a, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(b, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    SAY(bind_to(a, own_ip(), 27000)), SAY(bind_to(b, own_ip(), 27000));
    SAY(connect_to(a, peer_ip(), PEER_PORT)), SAY(connect_to(b, peer_ip(), PEER_PORT));
    SAY(connect_to(b, peer_ip(), 7002)), SAY(port_of(b));
    close(a), close(b);
}

/* Whoever has seen a few ports knows nothing of the next. For streams the kernel chooses ports at
 * random for each destination, and then goes on from there in random steps. */
static void spread(int type, int is_one_destination) {
    enum { SOCKETS = 400 };
    static unsigned char seen[65536];
    memset(seen, 0, sizeof seen);
    int distinct = 0, least = 65535, most = 0, is_wide = type == SOCK_DGRAM || !is_one_destination;
    for (int i = 0; i < SOCKETS; i++) {
        int fd = socket(AF_INET, type | SOCK_NONBLOCK, 0), port;
        connect_to(fd, peer_ip(), is_one_destination ? 7990 : 17000 + i);
        port = port_of(fd);
        distinct += !seen[port], seen[port] = 1;
        if (port < least) least = port;
        if (port > most) most = port;
        close(fd);
    }
    int close_by = 0;
    for (int port = 1; port < 65536; port++) close_by += seen[port] && seen[port - 1];
    if (is_wide)
        NOTE("%s, most distinct, all over the range, few neighbours",
             distinct > SOCKETS * 3 / 4 && most - least > 20000 && close_by < SOCKETS / 4 ? "yes"
                                                                                          : "no");
    else
        NOTE("%s, most distinct",
             distinct > SOCKETS * 3 / 4 && most - least > 1000 ? "yes" : "no");
}

int main(void) {
    none_left();
    in_a_range(SOCK_STREAM);
    in_a_range(SOCK_DGRAM);
    taken();
    spread(SOCK_DGRAM, 1);
    spread(SOCK_STREAM, 1), spread(SOCK_STREAM, 0);
}
