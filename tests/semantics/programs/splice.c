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

/* One datagram a call; what the pipe or the call has no room for is lost. */
static void from_datagrams(int family) {
    int ends[2], fd = socket(family, SOCK_DGRAM, 0);
    NOTE("from datagrams, %s", family == AF_INET ? "IPv4" : "IPv6");
    memset(buf, 'd', sizeof buf);
    SAY(pipe(ends));
    nonblocking(fd);
    SAY(splice(fd, 0, ends[1], 0, 100, 0));
    SAY(connect_as(family, fd, 7001));
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

int main(void) {
    from_socket();
    to_socket();
    much();
    as_datagrams();
    from_datagrams(AF_INET);
    from_datagrams(AF_INET6);
}
