/* What is sent leaves soon, also if the program makes no further call of sockets. */
#include "t.h"

/* Sends datagrams that nobody answers after `count` came at once; asks later whether they came. */
static void datagrams(int count) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in echo = at(peer_ip(), 7001), silent = at(peer_ip(), 7005);
    static char bytes[8][16];
    struct iovec places[8];
    struct mmsghdr messages[8] = {0};
    for (int i = 0; i < 8; i++) {
        places[i] = (struct iovec){bytes[i], sizeof bytes[i]};
        messages[i].msg_hdr.msg_iov = places + i, messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (int i = 0; i < count; i++) sendto(fd, "echo", 4, 0, (void *)&echo, sizeof echo);
    sleep_ms(100);
    NOTE("%d received", recvmmsg(fd, messages, 8, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 3; i++) sendto(fd, "silent", 6, 0, (void *)&silent, sizeof silent);
    sleep_ms(100);
    char answer[8] = {0};
    sendto(fd, "?", 1, 0, (void *)&silent, sizeof silent);
    sleep_ms(50);
    recv(fd, answer, 7, MSG_DONTWAIT);
    NOTE("after %d: %s came in time", count, answer);
    close(fd);
}

/* A failed sendmmsg(), and a datagram after it. */
static void after_an_error(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct iovec place = {"bytes", 5};
    struct mmsghdr messages[3] = {[0 ... 2] = {{.msg_iov = &place, .msg_iovlen = 1}}};
    SAY(connect_to(fd, peer_ip(), 8599));
    for (int i = 0; i < 5; i++) {
        send(fd, "first", 5, 0);
        sleep_ms(50);
        int failed = sendmmsg(fd, messages, 3, 0), error = errno;
        int sent = send(fd, "second", 6, 0);
        sleep_ms(50);
        int got = recv(fd, (char[8]){0}, 8, MSG_DONTWAIT);
        NOTE("%d %s, %d, %d %s", failed, name_of(error), sent, got, name_of(errno));
    }
    close(fd);
}

/* Two connections have events; the program answers the first and does something else. */
static void events(void) {
    int set = epoll_create1(0), fds[2];
    struct epoll_event events[4];
    for (int i = 0; i < 2; i++) {
        fds[i] = tcp(7008);
        epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){EPOLLIN, {.fd = fds[i]}});
    }
    sleep_ms(400);
    NOTE("%d events", epoll_wait(set, events, 4, 0));
    char bytes[8];
    for (int i = 0; i < 2; i++) {
        NOTE("%zd bytes", read(fds[i], bytes, sizeof bytes));
        if (write(fds[i], "ab", 2) != 2) exit(1);
        sleep_ms(200);
        NOTE("%zd bytes come back", recv(fds[i], bytes, sizeof bytes, MSG_DONTWAIT));
    }
    close(fds[0]), close(fds[1]), close(set);
}

/* Two connections have events: the answer to the first is what `act` does. */
static void first_of_two(const char *name, int port, void (*act)(int fd)) {
    int set = epoll_create1(0), fds[2];
    struct epoll_event events[4];
    char bytes[8];
    for (int i = 0; i < 2; i++) {
        fds[i] = tcp(i ? 7008 : port);
        epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){EPOLLOUT, {.fd = fds[i]}});
    }
    sleep_ms(100);
    int count = epoll_wait(set, events, 4, 0);
    act(fds[0]);
    sleep_ms(200);
    long got = recv(fds[0], bytes, sizeof bytes, MSG_DONTWAIT);
    NOTE("%s: %d events, %ld bytes come back", name, count, got);
    close(fds[0]), close(fds[1]), close(set);
}

static void put(int fd) {
    if (write(fd, "ab", 2) != 2) exit(1);
}

static void ends(int fd) { put(fd), shutdown(fd, SHUT_WR); }

static void corked(int fd) {
    int on = 1, off = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    put(fd), put(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
}

static void more(int fd) {
    send(fd, "ab", 2, MSG_MORE);
    put(fd);
}

static void sends_a_file(int fd) {
    int file = open("/proc/self/exe", O_RDONLY);
    off_t from = 0;
    if (sendfile(fd, file, &from, 3) != 3) exit(1);
    close(file);
}

/* Everything is read, and the peer, which had no room, hears of it. */
static void window(void) {
    static char bytes[1 << 20];
    int fd = tcp(7005), more = 0;
    sleep_ms(300);
    long got, first = 0;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) first += got;
    sleep_ms(150);
    ioctl(fd, FIONREAD, &more);
    NOTE("all came at once or more has come: %d", first == sizeof bytes || more > 0);
    close(fd);
}

int main(void) {
    first_of_two("bytes", 7001, put);
    first_of_two("an end", 7004, ends);
    first_of_two("corked", 7001, corked);
    first_of_two("more", 7001, more);
    first_of_two("a file", 7001, sends_a_file);
    window();
    datagrams(1), datagrams(8);
    after_an_error();
    events();
}
