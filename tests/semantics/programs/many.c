/* recvmmsg() and sendmmsg() with many messages: in order, with their names, flags and control
 * messages, with one in the middle that fails, and with errors before and after. */
#include "t.h"

enum { COUNT = 24, ROOM = 2048 };

static char bytes[COUNT][ROOM], controls[COUNT][128];
static struct sockaddr_in names[COUNT];
static struct iovec places[COUNT];
static struct mmsghdr messages[COUNT];

/* Fresh messages of `len` bytes each, or as long as their place allows. */
static struct mmsghdr *fresh(size_t len, int has_control) {
    for (int i = 0; i < COUNT; i++) {
        places[i] = (struct iovec){bytes[i], len};
        messages[i] = (struct mmsghdr){.msg_hdr = {names + i, sizeof *names, places + i, 1}};
        if (has_control)
            messages[i].msg_hdr.msg_control = controls[i],
            messages[i].msg_hdr.msg_controllen = sizeof controls[i];
    }
    return messages;
}

static struct mmsghdr *to(const char *ip, int port, size_t len) {
    fresh(len, 0);
    for (int i = 0; i < COUNT; i++) {
        names[i] = at(ip, port);
        memset(bytes[i], 'a' + i, ROOM);
    }
    return messages;
}

/* Prints of each message its letter, length, flags, sender's port and length of control. */
static void show(int count) {
    for (int i = 0; i < count; i++) {
        struct msghdr *it = &messages[i].msg_hdr;
        int len = messages[i].msg_len, same = 1, kept = len < (int)places[i].iov_len ? len : 0;
        for (int at = 1; at < kept; at++) same &= bytes[i][at] == bytes[i][0];
        printf(" %c%d%s/%x/%d/%zu/%u", len ? bytes[i][0] : '-', len, same ? "" : "?",
               it->msg_flags, ntohs(names[i].sin_port), it->msg_controllen, it->msg_namelen);
    }
    putchar('\n');
}

static void receive(const char *what, int fd, int count, int flags, struct timespec *limit) {
    int got = recvmmsg(fd, messages, count, flags, limit);
    printf("%s: %s %d", what, got < 0 ? name_of(errno) : "got", got);
    show(got < 0 ? 0 : got);
}

static int echoed(int fd, int count, size_t len) {
    int sent = sendmmsg(fd, to(peer_ip(), 7001, len), count, 0);
    NOTE("sent %d", sent);
    sleep_ms(100);
    return sent;
}

static void plain(int fd) {
    to(peer_ip(), 7001, 0);
    for (int i = 0; i < 20; i++) places[i].iov_len = i * 60;
    NOTE("sent %d, the last %u", sendmmsg(fd, messages, 20, 0), messages[19].msg_len);
    sleep_ms(100);
    fresh(ROOM, 0), receive("all", fd, COUNT, MSG_DONTWAIT, 0);
    receive("none", fd, COUNT, MSG_DONTWAIT, 0);
    receive("of none", fd, 0, MSG_DONTWAIT, 0);
    echoed(fd, 5, 300);
    fresh(100, 0), receive("cut", fd, 3, MSG_DONTWAIT, 0);
    fresh(100, 0), receive("cut, told", fd, 3, MSG_DONTWAIT | MSG_TRUNC, 0);
    echoed(fd, 4, 30);
    fresh(ROOM, 0), receive("looked at", fd, 3, MSG_DONTWAIT | MSG_PEEK, 0);
    fresh(ROOM, 0), receive("for one", fd, COUNT, MSG_WAITFORONE, 0);
}

static void limits(int fd) {
    struct timespec none = {0, 0}, some = {0, 150000000};
    echoed(fd, 3, 10);
    fresh(ROOM, 0), receive("no time", fd, COUNT, 0, &none);
    fresh(ROOM, 0), receive("the rest", fd, COUNT, MSG_DONTWAIT, 0);
    echoed(fd, 3, 10);
    fresh(ROOM, 0), receive("time enough", fd, 3, 0, &some);
    NOTE("left: %s", some.tv_nsec > 0 && some.tv_nsec < 150000000 ? "some" : "not so");
}

static void failures(int fd) {
    echoed(fd, 4, 10);
    fresh(ROOM, 0)[2].msg_hdr.msg_iov = (void *)8;
    receive("two and a bad one", fd, COUNT, MSG_DONTWAIT, 0);
    fresh(ROOM, 0), receive("its error", fd, COUNT, MSG_DONTWAIT, 0);
    receive("the others", fd, COUNT, MSG_DONTWAIT, 0);
    to(peer_ip(), 7001, 10)[2].msg_hdr.msg_iov = (void *)8;
    SAY(sendmmsg(fd, messages, 5, 0));
    SAY(sendmmsg(fd, messages + 2, 3, 0));
    to(peer_ip(), 7001, 10), names[1].sin_port = 0;
    SAY(sendmmsg(fd, messages, 5, 0));
    SAY(sendmmsg(fd, messages + 1, 4, 0));
    to(peer_ip(), 7001, 10), names[2].sin_family = AF_UNIX;
    SAY(sendmmsg(fd, messages, 5, 0));
    static char long_[70000];
    to(peer_ip(), 7001, 10), places[3] = (struct iovec){long_, sizeof long_};
    SAY(sendmmsg(fd, messages, 5, 0));
    SAY(sendmmsg(fd, messages + 3, 2, 0));
    sleep_ms(100);
    fresh(ROOM, 0), receive("those sent", fd, COUNT, MSG_DONTWAIT, 0);
}

static void two_ways(int fd) {
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(other, own_ip(), 8542));
    to(peer_ip(), 7001, 10);
    for (int i = 0; i < 10; i += 3) names[i] = at(own_ip(), 8542);
    for (int i = 1; i < 10; i += 3) places[i].iov_len = 1400;
    SAY(sendmmsg(fd, messages, 10, 0));
    sleep_ms(100);
    fresh(ROOM, 0), receive("here", other, COUNT, MSG_DONTWAIT, 0);
    fresh(ROOM, 0), receive("there and back", fd, COUNT, MSG_DONTWAIT, 0);
    close(other);
}

static void with_control(int fd) {
    int one = 1;
    SAY(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one));
    SAY(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &one, sizeof one));
    echoed(fd, 3, 10);
    fresh(ROOM, 1), receive("with control", fd, COUNT, MSG_DONTWAIT, 0);
    to(peer_ip(), 7001, 10);
    for (int i = 0; i < 4; i++) {
        struct msghdr *it = &messages[i].msg_hdr;
        it->msg_control = controls[i], it->msg_controllen = CMSG_SPACE(sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(it);
        *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), IPPROTO_IP, IP_TTL};
        *(int *)CMSG_DATA(head) = i == 3 ? 0 : 64;
    }
    SAY(sendmmsg(fd, messages, 4, 0));
    SAY(sendmmsg(fd, messages + 3, 1, 0));
    sleep_ms(100);
    fresh(ROOM, 0), receive("no room for control", fd, COUNT, MSG_DONTWAIT, 0);
}

static void refused(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(fd, peer_ip(), 8599));
    fresh(10, 0);
    for (int i = 0; i < COUNT; i++) messages[i].msg_hdr.msg_name = 0;
    SAY(sendmmsg(fd, messages, 1, 0));
    sleep_ms(100);
    SAY(sendmmsg(fd, messages, 3, 0));
    SAY(so_error(fd));
    SAY(sendmmsg(fd, messages, 1, 0));
    sleep_ms(100);
    receive("refused", fd, COUNT, MSG_DONTWAIT, 0);
    receive("nothing", fd, COUNT, MSG_DONTWAIT, 0);
    SAY(shutdown(fd, SHUT_WR));
    SAY(sendmmsg(fd, messages, 3, MSG_NOSIGNAL));
    close(fd);
}

static void say_offset(const char *what, int fd) {
    int offset = -2;
    socklen_t len = sizeof offset;
    getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len);
    NOTE("%s: an offset of %d", what, offset);
}

/* SO_PEEK_OFF moves back by what is received. */
static void with_offset(int fd) {
    int offset = 0;
    char byte[16];
    setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
    echoed(fd, 4, 10);
    for (int i = 0; i < 3; i++) recv(fd, byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
    say_offset("peeked", fd);
    fresh(ROOM, 0);
    receive("with an offset", fd, 2, MSG_DONTWAIT, NULL);
    say_offset("received", fd);
    fresh(ROOM, 0);
    receive("the rest", fd, COUNT, MSG_DONTWAIT, NULL);
    say_offset("received", fd);
    offset = -1;
    setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
}

int main(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(fd, own_ip(), 8541));
    plain(fd);
    with_offset(fd);
    limits(fd);
    failures(fd);
    two_ways(fd);
    refused();
    with_control(fd);
}
