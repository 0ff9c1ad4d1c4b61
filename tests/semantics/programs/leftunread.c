/* Datagrams that a program has waited for and not read, when their socket goes to another program:
 * in a message, or by exec; the first one closes it, or ends. */
#include "t.h"

enum { BOUND_FROM = 7360 };
enum { COUNT = 12, READ = 2 };

/* Reads all that is there: how many, and whether they are in order. */
static void read_rest(int fd) {
    struct timeval limit = {0, 500000};
    char got[64], want[64];
    int count = 0, next = READ, is_whole = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (;;) {
        ssize_t len = recv(fd, got, sizeof got, 0);
        if (len < 0) break;
        is_whole &= len == sprintf(want, "number %d", next++) && !memcmp(got, want, len);
        count++;
    }
    NOTE("the rest: %d %s, then %s", count, is_whole ? "in order" : "in disorder", name_of(errno));
}

static void reader(int way, int waits_before) {
    char byte;
    int fd = receive_fd(way);
    struct pollfd watched = {fd, POLLIN, 0};
    if (waits_before) poll(&watched, 1, 0);
    write(way, "t", 1);
    read(way, &byte, 1);
    read_rest(fd);
}

/* A socket to which the peer has sent COUNT datagrams, of which READ have been read. */
static int asked(int family, const char *own, int port, int is_connected) {
    int fd = socket(family, SOCK_DGRAM, 0);
    struct sockaddr_in to = at(peer_ip(), 7001);
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(7011)};
    inet_pton(AF_INET6, getenv("PEER_IP6"), &to6.sin6_addr);
    void *peer = family == AF_INET ? (void *)&to : &to6;
    socklen_t len = family == AF_INET ? sizeof to : sizeof to6;
    if (port >= BOUND_FROM) SAY(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "ss0", 4));
    if (family == AF_INET) {
        SAY(bind_to(fd, own, port));
    } else {
        struct sockaddr_in6 mine = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
        inet_pton(AF_INET6, own, &mine.sin6_addr);
        SAY(bind(fd, (void *)&mine, len));
    }
    if (is_connected) SAY(connect(fd, peer, len));
    char text[64];
    for (int i = 0; i < COUNT; i++) {
        int size = sprintf(text, "number %d", i);
        sendto(fd, text, size, 0, is_connected ? 0 : peer, is_connected ? 0 : len);
    }
    readable(fd);
    sleep_ms(100);
    for (int i = 0; i < READ; i++) SAY(recv(fd, text, sizeof text, 0));
    return fd;
}

static pid_t start_reader(const char *self, int ways[2], int waits_before) {
    char number[16];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ways);
    fcntl(ways[0], F_SETFD, FD_CLOEXEC);
    pid_t child = fork();
    if (!child) {
        snprintf(number, sizeof number, "%d", ways[1]);
        execl("/proc/self/exe", self, waits_before ? "waits" : "reads", number, (char *)0);
        _exit(1);
    }
    close(ways[1]);
    return child;
}

/* `how`: `c`: it is closed, `d`: first a copy of it and then it, `e`: this program ends. */
static void pass(const char *self, int fd, char how, int waits_before) {
    int ways[2];
    char byte;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pid_t child = start_reader(self, ways, waits_before);
    int copy = how == 'd' ? dup(fd) : -1;
    send_fd(ways[0], fd);
    read(ways[0], &byte, 1);
    if (how == 'd') close(copy);
    if (how == 'e') {
        write(ways[0], "gg", 2);
        _exit(0);
    }
    SAY(close(fd));
    sleep_ms(50);
    write(ways[0], "g", 1);
    waitpid(child, 0, 0);
    close(ways[0]);
}

int main(int argc, char **argv) {
    const char *self = argv[0], *own6 = getenv("OWN_IP6");
    if (argc > 2) {
        int fd = atoi(argv[2]);
        if (!strcmp(argv[1], "execs")) read_rest(fd);
        else reader(fd, !strcmp(argv[1], "waits"));
        return 0;
    }
    for (int waits = 0; waits < 2; waits++) {
        NOTE("# the receiver %s before", waits ? "waits" : "does not wait");
        pass(self, asked(AF_INET, "0.0.0.0", 7341 + waits, 0), 'c', waits);
        pass(self, asked(AF_INET, own_ip(), 7343 + waits, 0), 'c', waits);
        pass(self, asked(AF_INET6, "::", 7347 + waits, 0), 'c', waits);
        pass(self, asked(AF_INET, "0.0.0.0", 7351 + waits, 0), 'd', waits);
        pass(self, asked(AF_INET, own_ip(), BOUND_FROM + waits, 0), 'c', waits);
    }
    NOTE("# connected; the receiver waits before");
    pass(self, asked(AF_INET, own_ip(), 7345, 1), 'c', 1);
    pass(self, asked(AF_INET6, own6, 7349, 1), 'c', 1);
    NOTE("# a child that closes it");
    int fd = asked(AF_INET, "0.0.0.0", 7355, 0);
    pid_t child = fork();
    if (!child) {
        sleep_ms(50);
        read_rest(fd);
        _exit(0);
    }
    close(fd);
    waitpid(child, 0, 0);
    NOTE("# a program that ends");
    int ends[2];
    char byte;
    pipe(ends);
    if (!fork()) pass(self, asked(AF_INET, "0.0.0.0", 7357, 0), 'e', 0);
    close(ends[1]);
    read(ends[0], &byte, 1);
    NOTE("# exec");
    fd = asked(AF_INET, "0.0.0.0", 7356, 0);
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", self, "execs", number, (char *)0);
    return 1;
}
