/* The other side of every test: a kernel program in a namespace of its own.
 *
 * TCP 7001 echo            7002 says "hello\n", closes       7003 resets soon
 *     7004 counts bytes until EOF, answers the count         7005 sends 1 MiB, closes
 *     7006 never reads     7007 reads a byte, resets
 *     7008 waits 300 ms, says "late\n", echoes
 *     7009 urgent data as it is told to, line by line: see `urgent`
 *     7011 reads with MSG_OOB and marks, says what it found   7012 sends 60 MiB, closes
 *     7013 echo, takes data with the SYN (TCP_FASTOPEN)
 *     7014 echo, for the test of local ports alone: no other test's are in TIME-WAIT for it
 *     7010 "PORT what\n" or "PORT what ADDRESS\n": connects back to the asker's PORT, or to that of
 *     an IPv6 address, and does `what`:
 *          hello  sends "hello\n", waits for EOF
 *          oob    sends "ab", an urgent "X", "cd", waits for EOF
 *          reset  sends "x", resets
 *          rst    resets
 *          finrst sends "x" and FIN, resets
 *          ask    sends "ask\n", reads a line, sends it back with "you said ", closes
 *          late   sends "late\n" after 300 ms, waits for EOF
 *          silent waits for EOF
 *          bye    closes at once
 *          count  counts bytes until the end or an error, says the count to the asker
 *          ends   the same; says which of the two it was, too
 *          udp    sends the datagram "ping" there
 *          flows  sends it 40 datagrams "number 0" and so on, each from a socket of its own
 *          asks   the same; says to the asker how many of the sockets got their datagram back
 *          train  sends 200 datagrams "train 0" and so on from one socket, one each millisecond
 * UDP 7001 echo, 7002 answers each datagram with two, 7003 with ten joined ones (UDP_SEGMENT),
 *     7011 echo over IPv6, 7004 with its type of service and time to live, 7005 is silent;
 *     "?" it answers with the number of datagrams that came more than 50 ms ago
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void reset(int fd) {
    struct linger off = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
    close(fd);
}

static void send_all(int fd, const char *at, size_t len) {
    while (len) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0) return;
        at += n, len -= n;
    }
}

static void echo(int fd) {
    char buf[65536];
    ssize_t n;
    while ((n = read(fd, buf, sizeof buf)) > 0) send_all(fd, buf, n);
}

static void count(int fd) {
    char buf[65536];
    ssize_t n;
    unsigned long total = 0;
    while ((n = read(fd, buf, sizeof buf)) > 0) total += n;
    send_all(fd, buf, sprintf(buf, "%lu\n", total));
}

static void big(int fd) {
    char *data = malloc(1 << 20);
    for (int i = 0; i < 1 << 20; i++) data[i] = i % 251;
    send_all(fd, data, 1 << 20);
    free(data);
}

/* Each byte of the line is an order: a small letter is sent, a capital is sent urgently, `.` waits
 * 50 ms; `-` sends 100 bytes, `+` 100 of which the last is urgent. */
static void urgent(int fd) {
    char c, block[100];
    memset(block, '#', sizeof block);
    while (read(fd, &c, 1) == 1) {
        if (c == '.') usleep(50000);
        else if (c == '-') send_all(fd, block, sizeof block);
        else if (c == '+') send(fd, block, sizeof block, MSG_OOB | MSG_NOSIGNAL);
        else if (c >= 'A' && c <= 'Z') send(fd, &c, 1, MSG_OOB | MSG_NOSIGNAL);
        else if (c != '\n') send(fd, &c, 1, MSG_NOSIGNAL);
    }
}

/* Says what comes until the end: bytes, `<` and `>` around an urgent one, `|` at a mark. */
static void report(int fd) {
    char said[4096], buf[256], byte;
    size_t len = 0;
    for (;;) {
        struct pollfd p = {fd, POLLIN | POLLPRI, 0};
        poll(&p, 1, 2000);
        if (p.revents & POLLPRI && recv(fd, &byte, 1, MSG_OOB) == 1)
            len += sprintf(said + len, "<%c>", byte);
        if (!(p.revents & (POLLIN | POLLHUP))) {
            if (p.revents) continue;
            break;
        }
        if (sockatmark(fd) == 1) len += sprintf(said + len, "|");
        ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
        if (n == 0) break;
        if (n < 0) { usleep(1000); continue; }
        if (len + n > sizeof said - 64) n = sizeof said - 64 - len;
        memcpy(said + len, buf, n), len += n;
    }
    len += sprintf(said + len, "\n");
    send_all(fd, said, len);
}

enum { FLOWS = 40, TRAIN = 200, ANSWER_MS = 5000 };

/* How many of the sockets get back the datagram that they have sent, each once. */
static int answers(int *fds, int count) {
    struct pollfd waits[FLOWS];
    char want[32], got[64];
    int good = 0;
    for (int i = 0; i < count; i++) waits[i] = (struct pollfd){fds[i], POLLIN, 0};
    for (int left = count; left > 0;) {
        if (poll(waits, count, ANSWER_MS) <= 0) break;
        for (int i = 0; i < count; i++) {
            if (!waits[i].revents) continue;
            ssize_t n = recv(fds[i], got, sizeof got, MSG_DONTWAIT);
            int len = sprintf(want, "number %d", i);
            good += n == len && !memcmp(got, want, len);
            waits[i].fd = -1, left--;
        }
    }
    for (int i = 0; i < count; i++) good -= recv(fds[i], got, sizeof got, MSG_DONTWAIT) >= 0;
    return good;
}

static void many_datagrams(int fd, struct sockaddr_in *to, const char *what) {
    int fds[FLOWS], is_train = !strcmp(what, "train"), count = is_train ? TRAIN : FLOWS;
    char text[32];
    send_all(fd, "sends\n", 6);
    for (int i = 0; i < count; i++) {
        if (i < FLOWS) fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
        int len = sprintf(text, "%s %d", is_train ? "train" : "number", i);
        sendto(fds[is_train ? 0 : i], text, len, 0, (void *)to, sizeof *to);
        if (is_train) usleep(1000);
    }
    if (!strcmp(what, "asks")) send_all(fd, text, sprintf(text, "%d\n", answers(fds, FLOWS)));
    for (int i = 0; i < FLOWS; i++) close(fds[i]);
}

static int connect_out(int kind, const struct sockaddr_in *to, const char *ip6) {
    int out = socket(*ip6 ? AF_INET6 : AF_INET, kind, 0);
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = to->sin_port};
    inet_pton(AF_INET6, ip6, &to6.sin6_addr);
    const void *addr = *ip6 ? (const void *)&to6 : to;
    if (!connect(out, addr, *ip6 ? sizeof to6 : sizeof *to)) return out;
    close(out);
    return -1;
}

static void connect_back(int fd) {
    char line[64] = "", what[16] = "", ip6[46] = "", buf[256];
    int port = 0;
    for (size_t n = 0; n < sizeof line - 1 && read(fd, line + n, 1) == 1 && line[n] != '\n'; n++) {}
    sscanf(line, "%d %15s %45s", &port, what, ip6);
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    getpeername(fd, (void *)&to, &len);
    to.sin_port = htons(port);
    if (!strcmp(what, "flows") || !strcmp(what, "asks") || !strcmp(what, "train")) {
        many_datagrams(fd, &to, what);
        return;
    }
    int out = connect_out(strncmp(what, "udp", 3) ? SOCK_STREAM : SOCK_DGRAM, &to, ip6);
    if (out < 0) {
        send_all(fd, "failed\n", 7);
    } else if (!strcmp(what, "hello")) {
        send_all(out, "hello\n", 6);
        send_all(fd, "connected\n", 10);
        while (read(out, buf, sizeof buf) > 0) {}
    } else if (!strcmp(what, "oob")) {
        send_all(out, "ab", 2);
        usleep(20000);
        send(out, "X", 1, MSG_OOB);
        send_all(out, "cd", 2);
        while (read(out, buf, sizeof buf) > 0) {}
    } else if (!strcmp(what, "late") || !strcmp(what, "silent")) {
        send_all(fd, "connected\n", 10);
        if (what[0] == 'l') usleep(300000), send_all(out, "late\n", 5);
        while (read(out, buf, sizeof buf) > 0) {}
    } else if (!strcmp(what, "count") || !strcmp(what, "ends")) {
        unsigned long total = 0;
        ssize_t n;
        send_all(fd, "connected\n", 10);
        while ((n = read(out, buf, sizeof buf)) > 0) total += n;
        const char *end = what[0] == 'c' ? "" : n ? ", then a reset" : ", then the end";
        send_all(fd, buf, sprintf(buf, "%lu%s\n", total, end));
    } else if (!strcmp(what, "bye")) {
        send_all(fd, "connected\n", 10);
    } else if (!strcmp(what, "reset") || !strcmp(what, "rst") || !strcmp(what, "finrst")) {
        if (strcmp(what, "rst")) send_all(out, "x", 1);
        if (what[0] == 'f') shutdown(out, SHUT_WR);
        send_all(fd, "connected\n", 10);
        usleep(50000);
        reset(out);
        return;
    } else if (!strcmp(what, "ask")) {
        send_all(fd, "connected\n", 10);
        send_all(out, "ask\n", 4);
        ssize_t n = read(out, buf, sizeof buf);
        send_all(out, "you said ", 9);
        if (n > 0) send_all(out, buf, n);
    } else if (!strcmp(what, "udp100")) {
        for (int i = 0; i < 100; i++) send(out, buf, sprintf(buf, "%02d", i), 0);
    } else {
        send(out, "ping", 4, 0);
    }
    close(out);
}

static void stream(int fd) {
    static const char data[1 << 16];
    for (long left = 60L << 20; left > 0; left -= sizeof data) send_all(fd, data, sizeof data);
}

static void *serve_one(void *argument) {
    int fd = (intptr_t)argument;
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    getsockname(fd, (void *)&own, &len);
    char byte;
    switch (ntohs(own.sin_port)) {
    case 7001:
    case 7013:
    case 7014: echo(fd); break;
    case 7002: send_all(fd, "hello\n", 6); break;
    // A connect() that has not returned would tell of the reset itself.
    case 7003: usleep(20000); reset(fd); return 0;
    case 7004: count(fd); break;
    case 7005: big(fd); break;
    case 7006: pause(); break;
    case 7007: if (read(fd, &byte, 1)) {} reset(fd); return 0;
    case 7008: usleep(300000); send_all(fd, "late\n", 5); echo(fd); break;
    case 7009: urgent(fd); break;
    case 7011: report(fd); break;
    case 7012: stream(fd); break;
    case 7010: connect_back(fd); break;
    }
    close(fd);
    return 0;
}

static int open_port(int kind, int port) {
    int fd = socket(AF_INET, kind, 0), one = 1, small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (port == 7006) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (port == 7013) setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &small, sizeof small);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (bind(fd, (void *)&any, sizeof any)) perror("peer: bind"), exit(1);
    if (kind == SOCK_STREAM && listen(fd, 128)) perror("peer: listen"), exit(1);
    return fd;
}

static int open_port6(int port) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (bind(fd, (void *)&any, sizeof any)) perror("peer: bind"), exit(1);
    return fd;
}

static void *serve_tcp(void *argument) {
    int listener = (intptr_t)argument;
    for (;;) {
        int fd = accept(listener, 0, 0);
        pthread_t thread;
        if (fd < 0 || pthread_create(&thread, 0, serve_one, (void *)(intptr_t)fd)) continue;
        pthread_detach(thread);
    }
}

/* Ten datagrams in one call, the last one shorter; they stay together on the way to a neighbour. */
static void send_joined(int fd, void *to, socklen_t len) {
    char data[5000];
    int size = 520, none = 0;
    for (int i = 0; i < (int)sizeof data; i++) data[i] = i / 100;
    setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size);
    sendto(fd, data, sizeof data, 0, to, len);
    setsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, sizeof none);
}

/* Answers with what the header of a datagram says. */
static void *serve_headers(void *argument) {
    int fd = (intptr_t)argument, on = 1;
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    for (;;) {
        char buf[64], place[128];
        struct sockaddr_in from;
        struct iovec in = {buf, sizeof buf};
        struct msghdr message = {&from, sizeof from, &in, 1, place, sizeof place};
        if (recvmsg(fd, &message, 0) < 0) continue;
        int tos = -1, ttl = -1;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_type == IP_TTL) ttl = *(int *)CMSG_DATA(c);
            if (c->cmsg_type == IP_TOS) tos = *(unsigned char *)CMSG_DATA(c);
        }
        int len = sprintf(buf, "tos %d ttl %d", tos, ttl);
        sendto(fd, buf, len, 0, (void *)&from, sizeof from);
    }
}

static void *serve_silently(void *argument) {
    int fd = (intptr_t)argument, count = 0;
    struct timespec last = {0}, now;
    struct sockaddr_in6 from;
    char buf[64];
    for (;;) {
        socklen_t len = sizeof from;
        ssize_t n = recvfrom(fd, buf, sizeof buf, 0, (void *)&from, &len);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (n != 1 || *buf != '?') {
            last = now, count++;
            continue;
        }
        double ms = (now.tv_sec - last.tv_sec) * 1e3 + (now.tv_nsec - last.tv_nsec) / 1e6;
        sendto(fd, buf, sprintf(buf, "%d", ms > 50 ? count : 0), 0, (void *)&from, len);
        count = 0;
    }
}

static void *serve_udp(void *argument) {
    int fd = (intptr_t)argument;
    struct sockaddr_in own;
    struct sockaddr_in6 from;
    socklen_t len = sizeof own;
    getsockname(fd, (void *)&own, &len);
    static __thread char buf[65536];
    for (;;) {
        len = sizeof from;
        ssize_t n = recvfrom(fd, buf, sizeof buf, 0, (void *)&from, &len);
        if (n < 0) continue;
        if (ntohs(own.sin_port) == 7003) {
            send_joined(fd, &from, len);
            continue;
        }
        sendto(fd, buf, n, 0, (void *)&from, len);
        if (ntohs(own.sin_port) == 7002) sendto(fd, "second", 6, 0, (void *)&from, len);
    }
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    pthread_t thread;
    int ports[] = {7001, 7002, 7003, 7004, 7005, 7006, 7007, 7008, 7009, 7010, 7011, 7012, 7013,
                   7014};
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++)
        pthread_create(&thread, 0, serve_tcp, (void *)(intptr_t)open_port(SOCK_STREAM, ports[i]));
    for (int port = 7001; port <= 7003; port++)
        pthread_create(&thread, 0, serve_udp, (void *)(intptr_t)open_port(SOCK_DGRAM, port));
    pthread_create(&thread, 0, serve_headers, (void *)(intptr_t)open_port(SOCK_DGRAM, 7004));
    pthread_create(&thread, 0, serve_silently, (void *)(intptr_t)open_port(SOCK_DGRAM, 7005));
    pthread_create(&thread, 0, serve_udp, (void *)(intptr_t)open_port6(7011));
    puts("ready");
    fflush(stdout);
    pause();
}
