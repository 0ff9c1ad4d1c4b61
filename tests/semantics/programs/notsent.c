/* TCP_NOTSENT_LOWAT: how much may wait to be sent before a socket is not writable any more. */
#include "t.h"

#define LOW 16384
#define OUTQNSD 0x894b
static char block[1 << 20];

static int set(int fd, unsigned bytes) {
    return setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

static unsigned low_of(int fd) {
    unsigned bytes = 77;
    socklen_t len = sizeof bytes;
    return getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &len) ? 78 : bytes;
}

static int unsent(int fd) {
    int bytes = -1;
    ioctl(fd, OUTQNSD, &bytes);
    return bytes;
}

static int writable(int fd, int ms) {
    struct pollfd p = {fd, POLLOUT, 0};
    return poll(&p, 1, ms);
}

/* Writes until it would block. */
static void fill(int fd, size_t each) {
    while (send(fd, block, each, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {}
    int left = unsent(fd);
    NOTE("written by %zu: %s is unsent", each,
         left < LOW / 2 ? "little" : left < LOW + 65536 + 4096 ? "about what is allowed" : "much");
}

/* To a peer that never reads. */
static void stuck(size_t each) {
    int fd = tcp(7006);
    SAY(set(fd, LOW)), SAY(writable(fd, 0));
    fill(fd, each), SAY(writable(fd, 50));
    SAY(set(fd, 1 << 20)), SAY(writable(fd, 50));
    SAY(set(fd, LOW)), SAY(writable(fd, 50));
    SAY(set(fd, 0)), SAY(writable(fd, 50));
    close(fd);
}

/* To one that reads: whenever the socket is ready, less than half of what is allowed is unsent. */
static void flowing(int edges) {
    int fd = tcp(7004), list = epoll_create1(0), worst = 0;
    size_t total = 8 << 20, done = 0;
    nonblocking(fd);
    SAY(set(fd, 64 << 10));
    struct epoll_event event = {EPOLLOUT | (edges ? EPOLLET : 0)};
    epoll_ctl(list, EPOLL_CTL_ADD, fd, &event);
    while (done < total) {
        if (epoll_wait(list, &event, 1, 2000) != 1) {
            NOTE("not ready in time");
            break;
        }
        int left = unsent(fd);
        worst = left > worst ? left : worst;
        for (;;) {
            size_t rest = total - done;
            ssize_t n = send(fd, block, rest < sizeof block ? rest : sizeof block, MSG_NOSIGNAL);
            if (n <= 0) break;
            done += n;
            if (!edges) break;
        }
    }
    char answer[32] = "";
    shutdown(fd, SHUT_WR);
    struct pollfd p = {fd, POLLIN, 0};
    poll(&p, 1, 2000);
    ssize_t n = read(fd, answer, sizeof answer - 1);
    NOTE("%s: ready with %s unsent, the peer has %s", edges ? "edges" : "levels",
         worst < 32 << 10 ? "less than half" : "more", n > 0 ? strtok(answer, "\n") : "nothing");
    close(fd), close(list);
}

int main(void) {
    int fd = tcp(7006);
    NOTE("%u", low_of(fd)), SAY(set(fd, LOW)), NOTE("%u", low_of(fd)), SAY(set(fd, -1)),
        NOTE("%u", low_of(fd));
    short half = 1;
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &half, sizeof half));
    close(fd);
    stuck(1000), stuck(1 << 20);
    flowing(0), flowing(1);
    fd = tcp(7004);
    SAY(set(fd, 1));
    SAY(send(fd, block, sizeof block, 0)), SAY(shutdown(fd, SHUT_WR));
    char answer[32] = "";
    SAY(read(fd, answer, 31)), NOTE("%s", answer);
    close(fd);
    int server = listener(8421);
    SAY(set(server, LOW));
    int control = ask_peer(8421, "hello");
    fd = accept(server, 0, 0), NOTE("accepted: %u", low_of(fd));
    return 0;
}
