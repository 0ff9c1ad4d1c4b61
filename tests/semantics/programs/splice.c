/* splice between sockets and pipes, and sendfile to datagrams. */
#include "t.h"

static char buf[1 << 20];

static void from_socket(void) {
    int ends[2], fd = tcp(7001);
    NOTE("from a socket");
    SAY(pipe(ends));
    nonblocking(fd);
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    fcntl(fd, F_SETFL, 0);
    SAY(write(fd, "hello", 5));
    readable(fd);
    SAY(splice(fd, 0, ends[1], 0, 3, 0));
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    SAY(read(ends[0], buf, sizeof buf));
    NOTE("%.5s", buf);
    loff_t offset = 0;
    SAY(splice(fd, &offset, ends[1], 0, 3, 0));
    SAY(splice(fd, 0, ends[1], 0, 0, 0));
    SAY(splice(fd, 0, fd, 0, 3, 0));
    int file = memfd_create("x", 0);
    SAY(splice(fd, 0, file, 0, 3, 0));
    SAY(shutdown(fd, SHUT_WR));
    readable(fd);
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    int other = tcp(7002);
    readable(other);
    SAY(splice(other, 0, ends[1], 0, 100, 0));
    SAY(splice(other, 0, ends[0], 0, 100, 0));
    close(fd), close(other), close(ends[1]), close(file);
}

static void to_socket(void) {
    int ends[2], fd = tcp(7004);
    NOTE("to a socket");
    SAY(pipe(ends));
    SAY(splice(ends[0], 0, fd, 0, 100, SPLICE_F_NONBLOCK));
    SAY(write(ends[1], "0123456789", 10));
    SAY(splice(ends[0], 0, fd, 0, 4, SPLICE_F_MORE));
    SAY(splice(ends[0], 0, fd, 0, 100, 0));
    close(ends[1]);
    SAY(splice(ends[0], 0, fd, 0, 100, 0));
    SAY(shutdown(fd, SHUT_WR));
    SAY(read(fd, buf, sizeof buf));
    NOTE("%.2s", buf);
    SAY(splice(ends[0], 0, fd, 0, 100, 0));
    close(fd), close(ends[0]);
}

static void *reader(void *ends) {
    long total = 0, n;
    while ((n = read(((int *)ends)[0], buf, sizeof buf)) > 0) total += n;
    return (void *)total;
}

/* A mebibyte through a pipe, as a proxy does. */
static void much(void) {
    int ends[2], fd = tcp(7005);
    NOTE("much");
    SAY(pipe(ends));
    pthread_t thread;
    void *total;
    pthread_create(&thread, 0, reader, ends);
    long n, moved = 0;
    while ((n = splice(fd, 0, ends[1], 0, 1 << 20, SPLICE_F_MOVE)) > 0) moved += n;
    close(ends[1]);
    pthread_join(thread, &total);
    NOTE("%ld moved, %ld read", moved, (long)total);
    close(fd), close(ends[0]);

    fd = tcp(7004);
    SAY(pipe(ends));
    if (!fork()) {
        for (int i = 0; i < 16; i++) write(ends[1], buf, 1 << 16);
        _exit(0);
    }
    close(ends[1]);
    moved = 0;
    while ((n = splice(ends[0], 0, fd, 0, 1 << 20, SPLICE_F_MOVE | SPLICE_F_MORE)) > 0) moved += n;
    NOTE("%ld moved", moved);
    SAY(shutdown(fd, SHUT_WR));
    n = read_all(fd, buf, 64);
    NOTE("counted %.*s", (int)n - 1, buf);
    close(fd), close(ends[0]);
    wait(0);
}

static void as_datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), file = memfd_create("x", 0),
        empty = memfd_create("e", 0);
    NOTE("sendfile as datagrams");
    SAY(write(file, buf, 5000));
    off_t at = 0;
    SAY(sendfile(fd, file, &at, 100));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(sendfile(fd, file, &at, 100));
    SAY(at);
    SAY(recv(fd, buf, sizeof buf, 0));
    SAY(sendfile(fd, file, &at, 10000));
    SAY(at);
    SAY(recv(fd, buf, sizeof buf, 0));
    SAY(sendfile(fd, file, &at, 100));
    SAY(sendfile(fd, empty, 0, 100));
    SAY(lseek(file, 1000, SEEK_SET));
    SAY(sendfile(fd, file, 0, 50));
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(recv(fd, buf, sizeof buf, 0));
    int ends[2];
    SAY(pipe(ends));
    SAY(write(ends[1], "piped", 5));
    SAY(splice(ends[0], 0, fd, 0, 100, 0));
    SAY(recv(fd, buf, sizeof buf, 0));
    NOTE("%.5s", buf);
}

static int connect_as(int family, int fd, int port) {
    struct sockaddr_in6 peer = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, getenv("PEER_IP6"), &peer.sin6_addr);
    return family == AF_INET ? connect_to(fd, peer_ip(), port)
                             : connect(fd, (void *)&peer, sizeof peer);
}

static void echoed(int fd, int len) {
    SAY(send(fd, buf, len, 0));
    readable(fd);
}

/* The first IPv6 packets of a network may wait for their neighbour for seconds. */
static void resolve(int fd) {
    char byte;
    for (int i = 0; i < 100 && recv(fd, &byte, 1, MSG_DONTWAIT) < 0; i++)
        send(fd, "x", 1, 0), sleep_ms(100);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) > 0) {}
}

/* One datagram a call; what the pipe or the call has no room for is lost. */
static void from_datagrams(int family) {
    int ends[2], fd = socket(family, SOCK_DGRAM, 0);
    NOTE("from datagrams, %s", family == AF_INET ? "IPv4" : "IPv6");
    memset(buf, 'd', sizeof buf);
    SAY(pipe(ends));
    nonblocking(fd);
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    SAY(connect_as(family, fd, family == AF_INET ? 7001 : 7011));
    resolve(fd);
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    int lens[][2] = {{5, 100}, {5, 5}, {5, 3}, {0, 100}, {1400, 1 << 20}, {9000, 5000}};
    for (int i = 0; i < 6; i++) {
        echoed(fd, lens[i][0]);
        SAY(splice(fd, 0, ends[1], 0, lens[i][1], 0));
        SAY(splice(fd, 0, ends[1], 0, 100, SPLICE_F_NONBLOCK));
        if (lens[i][0]) SAY(read(ends[0], buf, sizeof buf));
    }
    NOTE("%.3s", buf);
    echoed(fd, 2);
    SAY(splice(fd, 0, ends[1], 0, 0, 0));
    SAY(splice(fd, 0, ends[0], 0, 100, 0));
    loff_t offset = 0;
    SAY(splice(fd, &offset, ends[1], 0, 100, 0));
    SAY(splice(fd, 0, fd, 0, 100, 0));
    SAY(recv(fd, buf, sizeof buf, 0));

    NOTE("a pipe with little room");
    SAY(write(ends[1], buf, 65536 - 2 * 4096));
    echoed(fd, 9000);
    SAY(splice(fd, 0, ends[1], 0, 1 << 20, 0));
    SAY(recv(fd, buf, sizeof buf, 0));
    echoed(fd, 5);
    SAY(splice(fd, 0, ends[1], 0, 100, SPLICE_F_NONBLOCK));
    SAY(recv(fd, buf, sizeof buf, 0));
    NOTE("a pipe with one page free, and more free bytes in the others");
    int parts[2];
    SAY(pipe(parts));
    for (int i = 0; i < 15; i++) write(parts[1], buf, 3000);
    echoed(fd, 9000);
    SAY(splice(fd, 0, parts[1], 0, 1 << 20, 0));
    SAY(recv(fd, buf, sizeof buf, 0));
    close(parts[0]), close(parts[1]);
    close(ends[0]);
    echoed(fd, 5);
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    SAY(recv(fd, buf, sizeof buf, 0));
    close(ends[1]);

    NOTE("the end of a wait");
    SAY(pipe(ends));
    fcntl(fd, F_SETFL, 0);
    struct timeval brief = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief);
    SAY(splice(fd, 0, ends[1], 0, 100, SPLICE_F_NONBLOCK));
    echoed(fd, 5);
    SAY(shutdown(fd, SHUT_RD));
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    close(fd), close(ends[0]), close(ends[1]);
}

static int between[2], receiving;
static long moved;
static void *splice_one(void *unused) {
    moved = splice(receiving, 0, between[1], 0, 3000, 0);
    return 0;
}
static void *write_much(void *unused) {
    static char much[65536];
    memset(much, 'w', sizeof much);
    write(between[1], much, sizeof much);
    return 0;
}
static void beside_a_writer(int is_stream) {
    pthread_t splicer, writer;
    long total = 0, of_socket = 0;
    NOTE("another writer fills the pipe while splice waits, %s", is_stream ? "TCP" : "UDP");
    pipe(between);
    receiving = socket(AF_INET, is_stream ? SOCK_STREAM : SOCK_DGRAM, 0);
    connect_to(receiving, peer_ip(), 7001);
    pthread_create(&splicer, 0, splice_one, 0), sleep_ms(100);
    pthread_create(&writer, 0, write_much, 0), sleep_ms(100);
    memset(buf, 'd', 1000);
    send(receiving, buf, 1000, 0), sleep_ms(200);
    while (total < 65536 + 1000) {
        struct pollfd p = {between[0], POLLIN, 0};
        if (!poll(&p, 1, 1000)) break;
        long got = read(between[0], buf, sizeof buf);
        for (long i = 0; i < got; i++) of_socket += buf[i] == 'd';
        total += got;
    }
    NOTE("%ld bytes, of which %ld the socket's", total, of_socket);
    close(between[0]), pthread_join(splicer, 0), pthread_join(writer, 0);
    NOTE("splice = %ld", moved);
    close(between[1]), close(receiving);
}
/* Nothing is waited for on a socket that has been shut down; a splice that waits ends. */
static void shut_down(int is_waiting, int is_bound_to_all) {
    pthread_t splicer;
    NOTE("shut down, %s, %s", is_waiting ? "while it waits" : "before",
         is_bound_to_all ? "any address" : "connected");
    pipe(between);
    receiving = socket(AF_INET, SOCK_DGRAM, 0);
    if (is_bound_to_all) bind_to(receiving, "0.0.0.0", 0);
    if (!is_bound_to_all) connect_to(receiving, peer_ip(), 7001);
    if (is_waiting) pthread_create(&splicer, 0, splice_one, 0), sleep_ms(100);
    SAY(shutdown(receiving, SHUT_RD));
    if (!is_waiting) pthread_create(&splicer, 0, splice_one, 0);
    pthread_join(splicer, 0);
    NOTE("splice = %ld", moved);
    nonblocking(receiving);
    SAY(splice(receiving, 0, between[1], 0, 3000, 0));
    close(between[0]), close(between[1]), close(receiving);
}
/* The kernel's part of a socket that is bound to all addresses. */
static void from_loopback(void) {
    NOTE("from the loopback and the peer");
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    pthread_t splicer;
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    pipe(between);
    receiving = socket(AF_INET, SOCK_DGRAM, 0);
    bind_to(receiving, "0.0.0.0", 0), getsockname(receiving, (void *)&own, &len);
    for (int i = 0; i < 4; i++) {
        struct sockaddr_in to = i & 1 ? at("127.0.0.1", ntohs(own.sin_port)) : at(peer_ip(), 7001);
        pthread_create(&splicer, 0, splice_one, 0), sleep_ms(50);
        sendto(i & 1 ? other : receiving, "some", 4, 0, (void *)&to, sizeof to);
        pthread_join(splicer, 0);
        NOTE("splice = %ld", moved);
        SAY(read(between[0], buf, sizeof buf));
    }
    close(between[0]), close(between[1]), close(receiving), close(other);
}

int main(void) {
    from_socket();
    to_socket();
    much();
    as_datagrams();
    from_datagrams(AF_INET);
    from_datagrams(AF_INET6);
    beside_a_writer(0), beside_a_writer(1);
    for (int i = 0; i < 4; i++) shut_down(i & 1, i & 2);
    from_loopback();
}
