/* Timestamps of connections: SO_TIMESTAMP and its relatives, SO_TIMESTAMPING in both directions. */
#include "t.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#define OPT_ID_TCP (1 << 16)
enum { COMMON = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY };

static int set(int fd, int name, int value) {
    return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

/* Whether a time is of the last few seconds. */
static const char *about_now(const void *data) {
    struct timespec then, now;
    memcpy(&then, data, sizeof then);
    clock_gettime(CLOCK_REALTIME, &now);
    long age = now.tv_sec - then.tv_sec;
    return then.tv_sec == 0 ? "none" : age >= 0 && age < 30 ? "now" : "another time";
}

static void take(int fd, int len, int flags) {
    char buf[4096], place[512];
    struct iovec in = {buf, len};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = place, .msg_controllen = sizeof place};
    ssize_t n = recvmsg(fd, &message, flags);
    if (n < 0) {
        NOTE("  %s", name_of(errno));
        return;
    }
    NOTE("  %zd bytes, flags %x, %zu of messages", n, message.msg_flags, message.msg_controllen);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IP) {
            struct sock_extended_err e;
            memcpy(&e, CMSG_DATA(c), sizeof e);
            NOTE("    error %d origin %d info %u data %u", e.ee_errno, e.ee_origin, e.ee_info,
                 e.ee_data);
        } else if (c->cmsg_level == SOL_SOCKET) {
            NOTE("    type %d in %zu bytes: %s", c->cmsg_type, c->cmsg_len - CMSG_LEN(0),
                 about_now(CMSG_DATA(c)));
        } else {
            NOTE("    level %d type %d", c->cmsg_level, c->cmsg_type);
        }
    }
}

static void received(const char *what, int name, int value) {
    NOTE("%s", what);
    int fd = tcp(7001);
    SAY(set(fd, name, value));
    for (int i = 0; i < 2; i++) {
        write(fd, "0123456789", 10), readable(fd);
        sleep_ms(60);
        take(fd, 4, MSG_PEEK), take(fd, 6, 0), take(fd, 100, 0);
        SAY(set(fd, name, 0));
    }
    shutdown(fd, SHUT_WR), readable(fd);
    take(fd, 4, 0);
    close(fd);
}

/* Until the error queue has a message. */
static void await_error(int fd) {
    struct pollfd p = {fd, 0, 0};
    SAY(poll(&p, 1, 5000)), SAY(p.revents);
}

static void sent(const char *what, int flags) {
    NOTE("%s", what);
    int fd = tcp(7004);
    write(fd, "abc", 3), sleep_ms(100);
    SAY(set(fd, SO_TIMESTAMPING, COMMON | flags));
    SAY(write(fd, "0123456789", 10));
    await_error(fd), sleep_ms(200);
    for (int i = 0; i < 4; i++) take(fd, 10, MSG_ERRQUEUE | MSG_DONTWAIT);
    SAY(write(fd, "0123456789", 5));
    await_error(fd), sleep_ms(200);
    for (int i = 0; i < 4; i++) take(fd, 10, MSG_ERRQUEUE | MSG_DONTWAIT);
    SAY(set(fd, SO_TIMESTAMPING, 0)), SAY(write(fd, "x", 1)), sleep_ms(60);
    take(fd, 10, MSG_ERRQUEUE | MSG_DONTWAIT);
    close(fd);
}

static void one_asked(void) {
    NOTE("one message asks");
    int fd = tcp(7004), flags = SOF_TIMESTAMPING_TX_SOFTWARE;
    SAY(set(fd, SO_TIMESTAMPING, COMMON | SOF_TIMESTAMPING_OPT_ID));
    char place[CMSG_SPACE(4)];
    struct iovec out = {"0123456789", 10};
    struct msghdr message = {
        .msg_iov = &out, .msg_iovlen = 1, .msg_control = place, .msg_controllen = sizeof place};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    *c = (struct cmsghdr){CMSG_LEN(4), SOL_SOCKET, SO_TIMESTAMPING};
    memcpy(CMSG_DATA(c), &flags, 4);
    SAY(write(fd, "0123", 4)), SAY(sendmsg(fd, &message, 0));
    await_error(fd);
    for (int i = 0; i < 2; i++) take(fd, 10, MSG_ERRQUEUE | MSG_DONTWAIT);
    flags = SOF_TIMESTAMPING_SOFTWARE;
    memcpy(CMSG_DATA(c), &flags, 4);
    SAY(sendmsg(fd, &message, 0));
    close(fd);
}

static void values(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), is[2] = {0};
    socklen_t len = sizeof is, half = 4;
    SAY(set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_ID));
    SAY(set(fd, SO_TIMESTAMPING, 1 << 30));
    close(fd);
    int server = listener(8395);
    SAY(set(server, SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_ID));
    close(server);
    fd = tcp(7001);
    SAY(set(fd, SO_TIMESTAMPING, OPT_ID_TCP));
    SAY(set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_TX_ACK));
    SAY(getsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, is, &len));
    NOTE("%x %x, %u", is[0], is[1], len);
    SAY(getsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, is, &half));
    NOTE("%x, %u", is[0], half);
    close(fd);
}

int main(void) {
    receive_stamps_begin();
    received("SO_TIMESTAMP", SO_TIMESTAMP, 1);
    received("SO_TIMESTAMPNS", SO_TIMESTAMPNS, 1);
    received("SO_TIMESTAMPING", SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE | COMMON);
    received("RX without SOFTWARE", SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE);
    sent("sent", SOF_TIMESTAMPING_TX_SOFTWARE);
    sent("sent, counted", SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_ID);
    sent("acknowledged, counted from now",
         SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_OPT_ID | OPT_ID_TCP);
    sent("scheduled, sent, acknowledged", SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE |
                                              SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_OPT_ID);
    one_asked();
    values();
}
