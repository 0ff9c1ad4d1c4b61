/* UDP_SEGMENT and UDP_GRO: several datagrams in one call. */
#include "t.h"
#include <netinet/udp.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif

static char data[65536];

/* sendmsg with a UDP_SEGMENT message of the given size (of `len` bytes). */
static ssize_t send_cut(int fd, int len, int size, int width) {
    char room[CMSG_SPACE(8)] = {0};
    struct iovec out = {data, len};
    struct msghdr message = {
        .msg_iov = &out, .msg_iovlen = 1, .msg_control = room, .msg_controllen = CMSG_SPACE(width)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_UDP, c->cmsg_type = UDP_SEGMENT, c->cmsg_len = CMSG_LEN(width);
    memcpy(CMSG_DATA(c), &size, width);
    return sendmsg(fd, &message, 0);
}

/* What waits: lengths, and the size that a GRO message tells. */
static void drain(int fd, const char *what) {
    static char buf[65536];
    for (int i = 0; i < 200; i++) {
        char room[256];
        struct iovec in = {buf, sizeof buf};
        struct msghdr message = {
            .msg_iov = &in, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, i ? 100 : 1000) != 1) {
            NOTE("%s: %d", what, i);
            return;
        }
        ssize_t n = recvmsg(fd, &message, 0);
        int size = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
            if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) size = *(int *)CMSG_DATA(c);
        if (n < 0) NOTE("%s: %s", what, strerrorname_np(errno));
        else if (i < 4 || size)
            NOTE("%s: %zd bytes, gro %d, first %d, last %d", what, n, size, buf[0],
                 n ? buf[n - 1] : -1);
    }
}

int main(void) {
    for (int i = 0; i < 65536; i++) data[i] = i / 100 % 100;
    int fd = OPEN(socket(AF_INET, SOCK_DGRAM, 0)), value;
    socklen_t len = sizeof value;
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(getsockopt(fd, SOL_UDP, UDP_SEGMENT, &value, &len));
    SAY(value);
    SAY(send_cut(fd, 1000, 300, 2));
    drain(fd, "four echoed");
    SAY(send_cut(fd, 300, 300, 2));
    drain(fd, "one");
    SAY(send_cut(fd, 0, 300, 2));
    drain(fd, "empty");
    SAY(send_cut(fd, 6400, 100, 2));
    drain(fd, "sixty-four");

    NOTE("limits");
    SAY(send_cut(fd, 12800, 100, 2));
    drain(fd, "a hundred and twenty-eight");
    SAY(send_cut(fd, 12801, 100, 2));
    SAY(send_cut(fd, 3000, 1472, 2));
    drain(fd, "largest");
    SAY(send_cut(fd, 3000, 1473, 2));
    SAY(send_cut(fd, 1000, 1473, 2));
    drain(fd, "smaller than its size");
    SAY(send_cut(fd, 65507, 1400, 2));
    drain(fd, "all");
    SAY(send_cut(fd, 65508, 1400, 2));
    SAY(send_cut(fd, 1000, 300, 4));
    SAY(send_cut(fd, 1000, 300, 1));
    char room[CMSG_SPACE(4)] = {0};
    struct iovec out = {data, 100};
    struct msghdr message = {
        .msg_iov = &out, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_UDP, c->cmsg_type = 999, c->cmsg_len = CMSG_LEN(2);
    SAY(sendmsg(fd, &message, 0));
    c->cmsg_level = 999;
    SAY(sendmsg(fd, &message, 0));
    drain(fd, "another's level");
    c->cmsg_len = 3;
    SAY(sendmsg(fd, &message, 0));

    NOTE("by the socket's option");
    value = 70000;
    SAY(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &value, sizeof value));
    value = -1;
    SAY(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &value, sizeof value));
    value = 400;
    SAY(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &value, sizeof value));
    SAY(getsockopt(fd, SOL_UDP, UDP_SEGMENT, &value, &len));
    SAY(value);
    SAY(send(fd, data, 1000, 0));
    drain(fd, "three echoed");
    SAY(send_cut(fd, 1000, 600, 2));
    drain(fd, "the message counts");
    SAY(send_cut(fd, 1000, 0, 2));
    drain(fd, "off for one");
    value = 0;
    SAY(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &value, sizeof value));
    SAY(send(fd, data, 1000, 0));
    drain(fd, "off");

    NOTE("what the peer sends joined");
    struct sockaddr_in to = at(peer_ip(), 7003);
    SAY(connect_to(fd, peer_ip(), 7003));
    SAY(send(fd, "go", 2, 0));
    drain(fd, "apart");
    value = 1;
    SAY(setsockopt(fd, SOL_UDP, UDP_GRO, &value, sizeof value));
    SAY(send(fd, "go", 2, 0));
    drain(fd, "joined");
    value = 0;
    SAY(setsockopt(fd, SOL_UDP, UDP_GRO, &value, sizeof value));
    SAY(send(fd, "go", 2, 0));
    drain(fd, "apart again");
    SAY(close(fd));
}
