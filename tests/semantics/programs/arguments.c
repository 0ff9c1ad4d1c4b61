/* Lengths, names and options that are strange or wrong. */
#include "t.h"
#include <sys/resource.h>

static void names(int fd) {
    char buf[64];
    struct sockaddr_in addr;
    struct iovec one = {buf, 1};
    NOTE("names");
    SAY(write(fd, "abcdef", 6));
    sleep_ms(60);
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_namelen = 77};
    SAY(recvmsg(fd, &message, 0));
    NOTE("%d", (int)message.msg_namelen);
    message.msg_namelen = -1;
    SAY(recvmsg(fd, &message, 0));
    SAY(recvfrom(fd, buf, 1, 0, (void *)&addr, NULL));
    socklen_t len = -1;
    SAY(recvfrom(fd, buf, 1, 0, (void *)&addr, &len));
    len = 7;
    SAY(recvfrom(fd, buf, 1, 0, (void *)&addr, &len));
    NOTE("%d", (int)len);
    SAY(recvfrom(fd, buf, 1, 0, NULL, NULL));
    SAY(getpeername(fd, (void *)&addr, NULL));
    SAY(getpeername(fd, NULL, &len));
    SAY(getsockname(fd, NULL, &len));
    SAY(getpeername(fd, NULL, &len));

    addr = at(peer_ip(), 7001);
    message =
        (struct msghdr){.msg_iov = &one, .msg_iovlen = 1, .msg_name = &addr, .msg_namelen = 500};
    SAY(sendmsg(fd, &message, 0));
    message.msg_namelen = -1;
    SAY(sendmsg(fd, &message, 0));
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(getpeername(udp, NULL, NULL));
    SAY(sendmsg(udp, &message, 0));
    message.msg_namelen = 500;
    SAY(sendmsg(udp, &message, 0));
    SAY(sendto(udp, buf, 1, 0, (void *)&addr, 500));
    SAY(close(udp));
}

static void control(int fd) {
    char buf[64] = "", place[CMSG_SPACE(4)] = "";
    struct iovec one = {buf, 1};
    NOTE("control messages of a stream");
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_controllen = 24};
    SAY(sendmsg(fd, &message, 0));
    message.msg_control = buf;
    message.msg_controllen = 3;
    SAY(sendmsg(fd, &message, 0));
    message.msg_control = place;
    message.msg_controllen = sizeof place;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(4), .cmsg_level = SOL_SOCKET, .cmsg_type = 999};
    SAY(sendmsg(fd, &message, 0));
    header->cmsg_level = IPPROTO_IP;
    SAY(sendmsg(fd, &message, 0));
    header->cmsg_len = 5;
    SAY(sendmsg(fd, &message, 0));
}

static void options(int fd) {
    NOTE("options");
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    SAY(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &len));
    NOTE("%d, port %d", (int)len, ntohs(name.sin_port));
    len = sizeof name + 1;
    char wide[32];
    SAY(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, wide, &len));
    len = 4;
    SAY(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, wide, &len));
    NOTE("%d", (int)len);
    uint64_t first = 1, second = 2, other = 3;
    len = sizeof first;
    SAY(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &first, &len));
    SAY(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &second, &len));
    len = 4;
    SAY(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &second, &len));
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    len = sizeof other;
    SAY(getsockopt(fresh, SOL_SOCKET, SO_COOKIE, &other, &len));
    NOTE("the same: %d, another's: %d", first == second, first == other);
    len = sizeof name;
    SAY(getsockopt(fresh, SOL_SOCKET, SO_PEERNAME, &name, &len));
    int on = 1;
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &on, sizeof on));
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on));
    SAY(setsockopt(fresh, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on));
    SAY(close(fresh));
}

static void others(int fd) {
    char buf[8];
    struct iovec one = {buf, 1};
    NOTE("others");
    SAY(write(fd, "abcdef", 6));
    sleep_ms(60);
    for (int flags = 1; flags <= 4; flags *= 2) SAY(preadv2(fd, &one, 1, -1, flags));
    SAY(preadv2(fd, &one, 1, -1, 0x8000));
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, -1, 0));
    SAY(ppoll(&p, -1, NULL, NULL));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    int fd = tcp(7001);
    names(fd);
    control(fd);
    options(fd);
    SAY(close(fd));
    fd = tcp(7001);
    others(fd);
    SAY(close(fd));
}
