/* A bound datagram socket hears from then on, waited for or not; and closed ports of the own
 * address refuse. */
#include "t.h"

static char buf[2048];

/* The peer sends "ping" to our port, and has done so when this returns. */
static void ping(int port) {
    int fd = ask_peer(port, "udp");
    read(fd, buf, 1);
    close(fd);
}

static int bound(const char *ip, int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind_to(fd, ip, port)) NOTE("bind to %d: %s", port, name_of(errno)), exit(1);
    return fd;
}

static int bound6(int port, int is_v6_only) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &is_v6_only, sizeof is_v6_only);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (bind(fd, (void *)&any, sizeof any)) NOTE("bind to %d: %s", port, name_of(errno)), exit(1);
    return fd;
}

static void hear(const char *what, int fd, int flags) {
    long n = recv(fd, buf, sizeof buf, flags);
    NOTE("%s: %s %.*s", what, n < 0 ? name_of(errno) : "heard", n < 0 ? 0 : (int)n, buf);
}

/* In a process of its own, which has not used the network before. */
static void apart(void (*what)(void)) {
    int status;
    pid_t pid = fork();
    if (!pid) what(), exit(0);
    waitpid(pid, &status, 0);
    SAY(WEXITSTATUS(status));
}

/* The peer is asked by another process than that which is bound. */
static void ping_from_child(int port) {
    pid_t pid = fork();
    if (!pid) ping(port), exit(0);
    waitpid(pid, 0, 0);
}

static void early(void) {
    int fd = bound("0.0.0.0", 8501), own = bound(own_ip(), 8502), six = bound6(8503, 0);
    int only6 = bound6(8504, 1), polled = bound(own_ip(), 8505), counted = bound("0.0.0.0", 8506);
    for (int port = 8501; port <= 8506; port++) ping_from_child(port);
    hear("wildcard", fd, MSG_DONTWAIT);
    hear("own address", own, MSG_DONTWAIT);
    hear("IPv6 wildcard", six, 0);
    hear("IPv6 only", only6, MSG_DONTWAIT);
    struct pollfd p = {polled, POLLIN, 0};
    SAY(poll(&p, 1, 0));
    hear("polled", polled, MSG_DONTWAIT);
    hear("counted", counted, MSG_PEEK);
    hear("once", counted, MSG_DONTWAIT);
    hear("and no more", counted, MSG_DONTWAIT);
}

/* The peer sends a hundred numbered datagrams to a socket that is not waited for. How many fit is
 * the stack's choice: half of those that the kernel takes are enough. */
static void hundred(int port, int room, int least) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), count = 0, number = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (bind_to(fd, own_ip(), port)) NOTE("bind to %d: %s", port, name_of(errno)), exit(1);
    pid_t pid = fork();
    if (!pid) {
        int way = ask_peer(port, "udp100");
        read(way, buf, 1);
        exit(0);
    }
    waitpid(pid, 0, 0);
    while (recv(fd, buf, sizeof buf, MSG_DONTWAIT) > 0 && sscanf(buf, "%d", &number) == 1)
        count += number == count ? 1 : 1000;
    if (count < least || count > 100) NOTE("%d of %d, or not the first", count, least);
    else NOTE("SO_RCVBUF %d: the first%s", room, room == 1 && count == 100 ? ", and all" : "");
    ping_from_child(port);
    hear("afterwards", fd, MSG_DONTWAIT);
}

static void many(void) {
    hundred(8531, 65536, 100);
    hundred(8532, 16384, 19);
    hundred(8533, 4096, 4);
    hundred(8534, 1, 1);
}

static void forked(void) {
    int fd = bound("0.0.0.0", 8511);
    ping_from_child(8511);
    pid_t pid = fork();
    if (!pid) hear("a child", fd, 0), exit(0);
    waitpid(pid, 0, 0);
}

static void connected(void) {
    int a = bound(own_ip(), 8521), b = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(b, own_ip(), 8521));
    SAY(send(b, "first", 5, 0));
    SAY(send(b, "second", 6, 0));
    hear("connected", a, 0);
    hear("connected", a, 0);
}

static void to_itself(void) {
    int a = bound(own_ip(), 8522);
    SAY(connect_to(a, own_ip(), 8522));
    SAY(send(a, "self", 4, 0));
    hear("itself", a, 0);
}

static void refused(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(fd, own_ip(), 8599));
    SAY(send(fd, "x", 1, 0));
    hear("nobody", fd, 0);
    SAY(send(fd, "x", 1, 0));
    readable(fd);
    SAY(so_error(fd) == ECONNREFUSED);
    SAY(so_error(fd));
    int six = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(8599)};
    inet_pton(AF_INET6, getenv("OWN_IP6"), &to.sin6_addr);
    SAY(connect(six, (void *)&to, sizeof to));
    SAY(send(six, "x", 1, 0));
    hear("nobody, IPv6", six, 0);
    /* One that is bound at the other address only. */
    int other = bound6(8598, 1), four = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(four, own_ip(), 8598));
    SAY(send(four, "x", 1, 0));
    hear("another family", four, 0);
    close(other);
}

static void refused_stream(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    int six = socket(AF_INET6, SOCK_STREAM, 0);
    setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_port = htons(8597)};
    inet_pton(AF_INET6, getenv("OWN_IP6"), &at6.sin6_addr);
    SAY(bind(six, (void *)&at6, sizeof at6));
    SAY(listen(six, 1));
    long since = now_ms();
    SAY(connect_to(fd, own_ip(), 8597));
    NOTE("%s", took(since, 0));
    since = now_ms();
    SAY(connect_to(socket(AF_INET, SOCK_STREAM, 0), own_ip(), 8596));
    NOTE("%s", took(since, 0));
}

int main(void) {
    apart(early);
    apart(many);
    apart(forked);
    apart(connected);
    apart(to_itself);
    apart(refused);
    apart(refused_stream);
}
