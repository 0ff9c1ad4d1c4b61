/* A wildcard UDP socket that the loopback and the network feed at once: MSG_PEEK shows the
 * datagram that the next receive takes, and none is lost or taken twice. */
#include "t.h"

enum { EACH = 200, MAX = 64 };

static int is_six;

static int bound(int port) {
    struct sockaddr_in any = at("0.0.0.0", port);
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct timeval limit = {3, 0};
    int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    SAY(is_six ? bind(fd, (void *)&any6, sizeof any6) : bind(fd, (void *)&any, sizeof any));
    return fd;
}

/* A process that sends to 127.0.0.1 once it is told to, one datagram each millisecond. */
static pid_t local_sender(int port) {
    pid_t child = fork();
    if (child) return child;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at("127.0.0.1", port);
    for (int i = 0; i < EACH; i++) {
        char text[MAX];
        sendto(fd, text, sprintf(text, "local %d", i), 0, (void *)&to, sizeof to), usleep(1000);
    }
    _exit(0);
}

struct got {
    ssize_t len;
    struct sockaddr_in6 from;
    char text[MAX];
};

enum way { RECVFROM, RECVMSG, RECVMMSG, LENGTH, POLLED, QUEUED };
static const char *const NAMES[] = {"recvfrom",           "recvmsg",       "recvmmsg",
                                    "the length by a peek", "poll and peek", "FIONREAD"};

static void take(int fd, enum way way, int flags, struct got *got) {
    memset(got, 0, sizeof *got);
    struct iovec in = {got->text, MAX};
    struct mmsghdr message = {{&got->from, sizeof got->from, &in, 1}};
    socklen_t len = sizeof got->from;
    struct pollfd p = {fd, POLLIN, 0};
    switch (way) {
    case RECVMSG: got->len = recvmsg(fd, &message.msg_hdr, flags); break;
    case RECVMMSG:
        got->len = recvmmsg(fd, &message, 1, flags, NULL) == 1 ? message.msg_len : -1;
        break;
    case POLLED:
        poll(&p, 1, 3000);
        got->len = recvfrom(fd, got->text, MAX, flags | MSG_DONTWAIT, (void *)&got->from, &len);
        break;
    default: got->len = recvfrom(fd, got->text, MAX, flags, (void *)&got->from, &len);
    }
}

/* Looks at the next datagram. */
static void look(int fd, enum way way, struct got *got) {
    int len = 0;
    struct pollfd p = {fd, POLLIN, 0};
    if (way == LENGTH) {
        memset(got, 0, sizeof *got), got->len = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
    } else if (way == QUEUED) {
        memset(got, 0, sizeof *got);
        poll(&p, 1, 3000), ioctl(fd, FIONREAD, &len), got->len = len;
    } else {
        take(fd, way, MSG_PEEK, got);
    }
}

static void mingled(enum way way, int port) {
    static unsigned char seen[2][EACH];
    memset(seen, 0, sizeof seen);
    int fd = bound(port), control = ask_peer(port, "train"), differ = 0, twice = 0, number;
    int came[2] = {0};
    char byte;
    read(control, &byte, 1);
    pid_t sender = local_sender(port);
    while (came[0] + came[1] < 2 * EACH) {
        struct got first, second;
        look(fd, way, &first);
        /* Time for another one to come. */
        if (came[0] % 4 == 1) usleep(1500);
        take(fd, way, 0, &second);
        if (second.len < 0) break;
        differ += first.len != second.len;
        if (way != LENGTH && way != QUEUED)
            differ += memcmp(&first.from, &second.from, sizeof first.from) ||
                      memcmp(first.text, second.text, MAX);
        int is_local = sscanf(second.text, "local %d", &number) == 1;
        if (!is_local && sscanf(second.text, "train %d", &number) != 1) number = -1;
        if (number < 0 || number >= EACH) continue;
        came[is_local] += !seen[is_local][number], twice += seen[is_local][number]++;
    }
    NOTE("%s: local %d, from the peer %d, twice %d, unlike %d", NAMES[way], came[1], came[0], twice,
         differ);
    waitpid(sender, NULL, 0);
    close(control), close(fd);
}

/* An error that waits in the kernel's part does not hide a datagram of the network. */
static void beside_an_error(void) {
    is_six = 0;
    int fd = bound(7360), on = 1, len = -1;
    struct sockaddr_in nobody = at("127.0.0.1", 7399), echo = at(peer_ip(), 7001);
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
    sendto(fd, "lost", 4, 0, (void *)&nobody, sizeof nobody);
    sleep_ms(50);
    ioctl(fd, FIONREAD, &len);
    NOTE("beside an error: %d bytes", len);
    sendto(fd, "echo", 4, 0, (void *)&echo, sizeof echo);
    sendto(fd, "echo", 4, 0, (void *)&echo, sizeof echo);
    sleep_ms(100);
    ioctl(fd, FIONREAD, &len);
    NOTE("beside an error: %d bytes", len);
    close(fd);
}

int main(void) {
    beside_an_error();
    for (is_six = 0; is_six < 2; is_six++) {
        NOTE("%s", is_six ? "::" : "0.0.0.0");
        for (enum way way = RECVFROM; way <= QUEUED; way++) mingled(way, 7340 + 10 * is_six + way);
    }
}
