/* Control messages of datagrams: what is told with those that come, and asked for those that go. */
#include "t.h"
#include <netinet/in.h>

static void say_address(const char *what, const void *at) {
    char text[INET_ADDRSTRLEN];
    NOTE("  %s %s", what, inet_ntop(AF_INET, at, text, sizeof text));
}

static void say_message(struct cmsghdr *c) {
    void *data = CMSG_DATA(c);
    int len = c->cmsg_len - CMSG_LEN(0);
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO &&
        len == sizeof(struct in_pktinfo)) {
        struct in_pktinfo *info = data;
        NOTE("  IP_PKTINFO interface %s", info->ipi_ifindex > 0 ? "known" : "not known");
        say_address("specific", &info->ipi_spec_dst), say_address("address", &info->ipi_addr);
    } else if (len < 1) {
        NOTE("  level %d type %d cut to nothing", c->cmsg_level, c->cmsg_type);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) {
        NOTE("  IP_TTL %d in %d bytes", *(int *)data, len);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
        NOTE("  IP_TOS %d in %d bytes", *(unsigned char *)data, len);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_ORIGDSTADDR) {
        struct sockaddr_in *to = data;
        NOTE("  IP_ORIGDSTADDR port %d in %d bytes", ntohs(to->sin_port), len);
        say_address("of", &to->sin_addr);
    } else if (c->cmsg_level == SOL_SOCKET &&
               (c->cmsg_type == SO_TIMESTAMP || c->cmsg_type == SO_TIMESTAMPNS)) {
        struct timespec now, *then = data;
        clock_gettime(CLOCK_REALTIME, &now);
        long age = len < 16 ? 0 : now.tv_sec - then->tv_sec;
        NOTE("  %s %s in %d bytes",
             c->cmsg_type == SO_TIMESTAMP ? "SO_TIMESTAMP" : "SO_TIMESTAMPNS",
             age >= 0 && age <= 2 ? "just now" : "at another time", len);
    } else {
        NOTE("  level %d type %d in %d bytes", c->cmsg_level, c->cmsg_type, len);
    }
}

/* Receives one datagram with `room` bytes for messages and tells everything. */
static void take(int fd, const char *what, int room) {
    char buf[2048], place[512];
    struct iovec in = {buf, sizeof buf};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = place, .msg_controllen = room};
    readable(fd);
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
    if (n < 0) {
        NOTE("%s: %s", what, name_of(errno));
        return;
    }
    NOTE("%s: %.*s, %zu of messages%s", what, (int)n, buf, message.msg_controllen,
         message.msg_flags & MSG_CTRUNC ? ", cut" : "");
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        say_message(c);
}

static int switch_on(int fd, int level, int name) {
    int one = 1;
    return setsockopt(fd, level, name, &one, sizeof one);
}

/* Sends "x" with one message. */
static ssize_t send_with(int fd, int level, int type, const void *data, int len) {
    char place[128] = {0};
    struct iovec out = {"x", 1};
    struct msghdr message = {
        .msg_iov = &out, .msg_iovlen = 1, .msg_control = place, .msg_controllen = CMSG_SPACE(len)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = level, c->cmsg_type = type, c->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(c), data, len);
    return sendmsg(fd, &message, 0);
}

static ssize_t send_from(int fd, const char *ip) {
    struct in_pktinfo info = {0};
    inet_pton(AF_INET, ip, &info.ipi_spec_dst);
    return send_with(fd, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
}

static ssize_t send_int(int fd, int type, int value) {
    return send_with(fd, IPPROTO_IP, type, &value, sizeof value);
}

int main(void) {
    int fd = OPEN(socket(AF_INET, SOCK_DGRAM, 0)), value;
    SAY(bind_to(fd, own_ip(), 8361));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(send(fd, "plain", 5, 0));
    take(fd, "nothing asked for", 512);
    SAY(switch_on(fd, IPPROTO_IP, IP_PKTINFO));
    SAY(send(fd, "info", 4, 0));
    take(fd, "packet info", 512);
    SAY(switch_on(fd, IPPROTO_IP, IP_RECVTTL));
    SAY(switch_on(fd, IPPROTO_IP, IP_RECVTOS));
    SAY(switch_on(fd, IPPROTO_IP, IP_RECVORIGDSTADDR));
    SAY(switch_on(fd, SOL_SOCKET, SO_TIMESTAMP));
    SAY(send(fd, "all", 3, 0));
    take(fd, "all", 512);
    SAY(switch_on(fd, SOL_SOCKET, SO_TIMESTAMPNS));
    for (int room = 0; room <= 160; room += 20) {
        send(fd, "room", 4, 0);
        char what[32];
        sprintf(what, "room for %d", room);
        take(fd, what, room);
    }
    SAY(switch_on(fd, SOL_SOCKET, SO_RXQ_OVFL));
    SAY(send(fd, "none lost", 9, 0));
    take(fd, "nothing lost", 512);
    SAY(switch_on(fd, SOL_SOCKET, 75 /* SO_RCVMARK */));
    SAY(switch_on(fd, SOL_SOCKET, 82 /* SO_RCVPRIORITY */));
    SAY(send(fd, "unmarked", 8, 0));
    take(fd, "neither mark nor priority", 512);

    NOTE("the peer tells what it sees");
    SAY(connect_to(fd, peer_ip(), 7004));
    value = 0x20;
    SAY(setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof value));
    value = 33;
    SAY(setsockopt(fd, IPPROTO_IP, IP_TTL, &value, sizeof value));
    SAY(send(fd, "tos", 3, 0));
    take(fd, "from the option", 512);

    NOTE("messages of a send");
    char tos = 0x10;
    SAY(send_with(fd, IPPROTO_IP, IP_TOS, &tos, 1));
    take(fd, "tos of a byte", 512);
    SAY(send_int(fd, IP_TOS, 0x18));
    take(fd, "tos of an int", 512);
    SAY(send_int(fd, IP_TOS, 256));
    SAY(send_int(fd, IP_TOS, -1));
    SAY(send_int(fd, IP_TTL, 3));
    take(fd, "ttl", 512);
    SAY(send_int(fd, IP_TTL, 0));
    SAY(send_int(fd, IP_TTL, 256));
    SAY(send_with(fd, IPPROTO_IP, IP_TTL, "x", 1));
    SAY(send_int(fd, 77, 1));
    SAY(send_with(fd, SOL_SOCKET, 999, "abcd", 4));
    SAY(send_with(fd, 999, 1, "abcd", 4));
    take(fd, "somebody else's level", 512);

    NOTE("by packet info");
    SAY(send_from(fd, own_ip()));
    take(fd, "own address", 512);
    SAY(send_from(fd, "0.0.0.0"));
    take(fd, "no address", 512);
    SAY(send_from(fd, peer_ip()));
    SAY(send_from(fd, "10.99.99.99"));
    SAY(send_with(fd, IPPROTO_IP, IP_PKTINFO, "abcd", 4));
    SAY(close(fd));

    NOTE("a wildcard socket");
    fd = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
    SAY(bind_to(fd, "0.0.0.0", 8362));
    SAY(switch_on(fd, IPPROTO_IP, IP_PKTINFO));
    int asked = ask_peer(8362, "udp");
    take(fd, "its destination", 512);
    close(asked);

    NOTE("too many");
    SAY(switch_on(fd, SOL_SOCKET, SO_RXQ_OVFL));
    value = 2304;
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
    SAY(connect_to(fd, peer_ip(), 7001));
    static char kilobyte[1000];
    for (int i = 0; i < 100; i++) send(fd, kilobyte, sizeof kilobyte, 0);
    sleep_ms(100);
    int taken = 0;
    while (recv(fd, kilobyte, sizeof kilobyte, MSG_DONTWAIT) > 0) taken++;
    NOTE("some were lost: %s", taken > 0 && taken < 100 ? "yes" : "no");
    SAY(send(fd, "after", 5, 0));
    char buf[64], place[128];
    struct iovec in = {buf, sizeof buf};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = place, .msg_controllen = sizeof place};
    readable(fd);
    SAY(recvmsg(fd, &message, 0));
    unsigned lost = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL)
            lost = *(unsigned *)CMSG_DATA(c);
    NOTE("it is told: %s", lost > 0 && lost < 100 ? "yes" : "no");
    SAY(close(fd));
}
