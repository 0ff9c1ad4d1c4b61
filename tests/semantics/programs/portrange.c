/* The port of a connection that its program does not choose: of the range of the socket, or else of
 * the system's as it is at that moment, and never one that a socket is bound to, though nobody has
 * waited on that yet. */
#include "t.h"

#define LOCAL_PORT_RANGE 51
#define FILE_OF_RANGE "/proc/sys/net/ipv4/ip_local_port_range"

static int made(int type, const char *ip, int port, int reuses, int listens) {
    int fd = socket(AF_INET, type, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuses, sizeof reuses);
    if (bind_to(fd, ip, port) || (listens && listen(fd, 8)))
        NOTE("%s %d: %s", ip, port, name_of(errno));
    return fd;
}

static int is_within(int fd, unsigned first, unsigned last) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    getsockname(fd, (void *)&name, &len);
    return ntohs(name.sin_port) >= first && ntohs(name.sin_port) <= last;
}

/* Connects by a port of a range that the socket has. */
static void within(const char *what, int type, unsigned first, unsigned last) {
    int fd = socket(AF_INET, type, 0);
    unsigned range = last << 16 | first;
    setsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, sizeof range);
    int answer = connect_to(fd, peer_ip(), type == SOCK_STREAM ? 7001 : 7002);
    const char *place = is_within(fd, first, last) ? "there" : "elsewhere";
    NOTE("%s: %s", what, answer ? name_of(errno) : place);
    close(fd);
}

static void never_a_bound_one(void) {
    int kept[] = {
        made(SOCK_STREAM, "0.0.0.0", 40100, 1, 1),  made(SOCK_STREAM, own_ip(), 40101, 0, 1),
        made(SOCK_STREAM, "0.0.0.0", 40102, 0, 0),  made(SOCK_STREAM, own_ip(), 40103, 1, 0),
        made(SOCK_STREAM, "127.0.0.1", 40104, 0, 1), made(SOCK_DGRAM, "0.0.0.0", 40105, 0, 0),
        made(SOCK_DGRAM, own_ip(), 40106, 0, 0),    made(SOCK_DGRAM, "127.0.0.1", 40107, 0, 0),
    };
    within("a listener", SOCK_STREAM, 40100, 40100);
    within("one at our address", SOCK_STREAM, 40101, 40101);
    within("a bound one", SOCK_STREAM, 40102, 40102);
    within("one that shares its address", SOCK_STREAM, 40103, 40103);
    within("the loopback's", SOCK_STREAM, 40104, 40104);
    within("all of these", SOCK_STREAM, 40100, 40104);
    within("one is left", SOCK_STREAM, 40100, 40105);
    within("datagrams", SOCK_DGRAM, 40105, 40105);
    within("datagrams at our address", SOCK_DGRAM, 40106, 40106);
    within("datagrams at the loopback's", SOCK_DGRAM, 40107, 40107);
    within("one is left for datagrams", SOCK_DGRAM, 40105, 40108);
    for (int at = 0; at < 8; at++) close(kept[at]);
    within("after the end of a listener", SOCK_STREAM, 40101, 40101);
    within("after the end of datagrams", SOCK_DGRAM, 40106, 40106);
}

/* A socket with an address and no port of its own. */
static void from_an_address(const char *ip, unsigned first, unsigned last) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind_to(fd, ip, 0) || connect_to(fd, peer_ip(), 7001))
        NOTE("from %s: %s", ip == own_ip() ? "our address" : ip, name_of(errno));
    else
        NOTE("from an address: %s", is_within(fd, first, last) ? "there" : "elsewhere");
    close(fd);
}

static void set_range(const char *text) {
    int fd = open(FILE_OF_RANGE, O_WRONLY);
    if (write(fd, text, strlen(text)) < 0) NOTE("write: %s", name_of(errno));
    close(fd);
    /* The kernel needs none of it. */
    sleep_ms(300);
}

static void all_within(const char *what, int type, unsigned first, unsigned last) {
    int there = 0, kept[40];
    for (int at = 0; at < 40; at++) {
        kept[at] = socket(AF_INET, type, 0);
        if (connect_to(kept[at], peer_ip(), type == SOCK_STREAM ? 7001 : 7002))
            NOTE("%s: %s", what, name_of(errno));
        there += is_within(kept[at], first, last);
    }
    NOTE("%s: %d of 40", what, there);
    for (int at = 0; at < 40; at++) close(kept[at]);
}

int main(void) {
    char before[64] = "";
    int fd = open(FILE_OF_RANGE, O_RDONLY);
    SAY(read(fd, before, sizeof before - 1) > 0);
    close(fd);
    never_a_bound_one();
    all_within("connections", SOCK_STREAM, 32768, 60999);
    set_range("20000 20099");
    within("a range in it", SOCK_STREAM, 20010, 20010);
    int listening = made(SOCK_STREAM, "0.0.0.0", 20011, 0, 1);
    within("a listener there", SOCK_STREAM, 20011, 20011);
    close(listening);
    from_an_address(own_ip(), 20000, 20099);
    from_an_address("0.0.0.0", 20000, 20099);
    all_within("connections by another range", SOCK_STREAM, 20000, 20099);
    all_within("datagrams by it", SOCK_DGRAM, 20000, 20099);
    set_range("40000 50000");
    all_within("connections by a part", SOCK_STREAM, 40000, 50000);
    all_within("datagrams by a part", SOCK_DGRAM, 40000, 50000);
    set_range(before);
    all_within("connections by the former range", SOCK_STREAM, 32768, 60999);
    return 0;
}
