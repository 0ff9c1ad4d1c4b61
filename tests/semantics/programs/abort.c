/* What was sent before an abortive close arrives before the reset. */
#include "t.h"

enum { ROUNDS = 40, LEN = 1000 };
static char data[LEN];

static void abandon(int fd) {
    struct linger off = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
    close(fd);
}

/* The peer reads what we have sent. */
static int to_peer(int listening) {
    int asked = ask_peer(8541, "count"), fd = accept(listening, 0, 0);
    char line[32] = "";
    read_all(asked, line, 10);
    memset(line, 0, sizeof line);
    send(fd, data, LEN, 0);
    abandon(fd);
    read_all(asked, line, sizeof line - 1);
    close(asked);
    return atoi(line) == LEN;
}

static int to_ourselves(int listening) {
    int one = socket(AF_INET, SOCK_STREAM, 0);
    char buf[2 * LEN];
    connect_to(one, own_ip(), 8542);
    int other = accept(listening, 0, 0);
    send(one, data, LEN, 0);
    abandon(one);
    long n = recv(other, buf, sizeof buf, 0);
    int is_right = n == LEN && recv(other, buf, sizeof buf, 0) == -1 && errno == ECONNRESET;
    close(other);
    return is_right;
}

/* More than the first window: the peer's acknowledgements arrive while it is sent. */
static int much_to_peer(int listening) {
    static char much[20000];
    char line[64] = "", what[64] = "ends";
    struct sockaddr_in6 own;
    socklen_t len = sizeof own;
    getsockname(listening, (void *)&own, &len);
    if (own.sin6_family == AF_INET6) snprintf(what, sizeof what, "ends %s", getenv("OWN_IP6"));
    int asked = ask_peer(ntohs(own.sin6_port), what), fd = accept(listening, 0, 0);
    read_all(asked, line, 10);
    memset(line, 0, sizeof line);
    send(fd, much, sizeof much, 0);
    abandon(fd);
    read_all(asked, line, sizeof line - 1);
    close(asked);
    return !strcmp(line, "20000, then a reset\n");
}

/* Between two processes. */
static int to_child(int listening) {
    pid_t pid = fork();
    if (!pid) {
        close(listening);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        connect_to(fd, own_ip(), 8543);
        send(fd, data, LEN, 0);
        abandon(fd);
        exit(0);
    }
    char buf[2 * LEN];
    int fd = accept(listening, 0, 0);
    long n = read_all(fd, buf, LEN);
    close(fd);
    waitpid(pid, 0, 0);
    return n == LEN;
}


/* On a busy machine the kernel's acknowledgements are late now and then, and it drops what it has
 * not sent by then. */
static void many_at(const char *what, int listening, int (*one)(int), int late) {
    int right = 0;
    for (int i = 0; i < ROUNDS; i++) right += one(listening);
    if (right + late >= ROUNDS) right = ROUNDS;
    NOTE("%s: %d of %d", what, right, ROUNDS);
    close(listening);
}

static void many(const char *what, int port, int (*one)(int), int late) {
    many_at(what, listener(port), one, late);
}

static int listener6(int port) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bind(fd, (void *)&any, sizeof any), listen(fd, 16);
    return fd;
}

int main(void) {
    many("to the peer", 8541, to_peer, 0);
    many("to ourselves", 8542, to_ourselves, 0);
    many("to another process", 8543, to_child, 0);
    many("20,000 bytes to the peer", 8544, much_to_peer, 4);
    many_at("20,000 bytes to the peer over IPv6", listener6(8545), much_to_peer, 4);
}
