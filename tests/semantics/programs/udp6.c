/* Datagrams over IPv6: control messages, the error queue, and IPv4 through a socket of IPv6. */
#include "t.h"
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>

static struct sockaddr_in6 at6(const char *ip, int port) {
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, ip, &addr.sin6_addr);
    return addr;
}

static const char *text_of(const void *at) {
    static char text[INET6_ADDRSTRLEN];
    return inet_ntop(AF_INET6, at, text, sizeof text);
}

static void say_message(struct cmsghdr *c) {
    void *data = CMSG_DATA(c);
    int len = c->cmsg_len - CMSG_LEN(0);
    if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
        struct in6_pktinfo *info = data;
        NOTE("  IPV6_PKTINFO %s, interface %s", text_of(&info->ipi6_addr),
             info->ipi6_ifindex ? "known" : "not known");
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR) {
        struct sock_extended_err *e = data;
        struct sockaddr_in6 *who = (void *)SO_EE_OFFENDER(e);
        NOTE("  IPV6_RECVERR in %d bytes: %s origin %d type %d code %d info %u", len,
             name_of(e->ee_errno), e->ee_origin, e->ee_type, e->ee_code, e->ee_info);
        NOTE("  from family %d %s", who->sin6_family, text_of(&who->sin6_addr));
    } else {
        NOTE("  level %d type %d in %d bytes: %d", c->cmsg_level, c->cmsg_type, len,
             len >= 4 ? *(int *)data : *(char *)data);
    }
}

static void take(int fd, const char *what, int flags) {
    char buf[2048] = "", place[512];
    struct sockaddr_in6 from = {0};
    struct iovec in = {buf, sizeof buf};
    struct msghdr message = {&from, sizeof from, &in, 1, place, sizeof place};
    if (!flags) readable(fd);
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | flags);
    if (n < 0) {
        NOTE("%s: %s", what, name_of(errno));
        return;
    }
    NOTE("%s: \"%.*s\" %s port %d", what, (int)n, buf, text_of(&from.sin6_addr),
         ntohs(from.sin6_port));
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        say_message(c);
}

static int switch_on(int fd, int level, int name) {
    int one = 1;
    return setsockopt(fd, level, name, &one, sizeof one);
}

static size_t length = 1;

static ssize_t send_with(int fd, struct sockaddr_in6 *to, int level, int type, const void *data,
                         int len) {
    static char payload[3000] = "x";
    char place[128] = {0};
    struct iovec out = {payload, length};
    struct msghdr message = {to, sizeof *to, &out, 1, place, CMSG_SPACE(len)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = level, c->cmsg_type = type, c->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(c), data, len);
    return sendmsg(fd, &message, 0);
}

static ssize_t send_int(int fd, struct sockaddr_in6 *to, int type, int value) {
    return send_with(fd, to, IPPROTO_IPV6, type, &value, sizeof value);
}

static ssize_t send_from(int fd, struct sockaddr_in6 *to, const char *ip) {
    struct in6_pktinfo info = {0};
    inet_pton(AF_INET6, ip, &info.ipi6_addr);
    return send_with(fd, to, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
}

int main(void) {
    const char *own = getenv("OWN_IP6"), *peer = getenv("PEER_IP6");
    char mapped[64], own_mapped[64];
    sprintf(mapped, "::ffff:%s", peer_ip()), sprintf(own_mapped, "::ffff:%s", own_ip());
    struct sockaddr_in6 echo = at6(peer, 7011), closed = at6(peer, 7999), self = at6(own, 8364);
    struct sockaddr_in6 echo4 = at6(mapped, 7001), closed4 = at6(mapped, 7999);
    int fd = OPEN(socket(AF_INET6, SOCK_DGRAM, 0));
    SAY(bind(fd, (void *)&self, sizeof self));
    SAY(switch_on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO));
    SAY(switch_on(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT));
    SAY(switch_on(fd, IPPROTO_IPV6, IPV6_RECVTCLASS));
    /* The first may be lost while the link comes up. */
    for (int i = 0; i < 20; i++) {
        struct pollfd p = {fd, POLLIN, 0};
        sendto(fd, "hello", 5, 0, (void *)&echo, sizeof echo);
        if (poll(&p, 1, 250) == 1) break;
    }
    take(fd, "all", 0);
    sleep_ms(300);
    char byte;
    while (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0) {}

    unsigned char route[8] = {IPPROTO_UDP, 0, 0, 1};
    SAY(setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, route, sizeof route));
    SAY(setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, route, 4));
    SAY(setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, 0, 0));

    NOTE("messages of a send");
    SAY(send_int(fd, &echo, IPV6_HOPLIMIT, 9));
    take(fd, "hop limit", 0);
    SAY(send_int(fd, &echo, IPV6_TCLASS, 0x20));
    take(fd, "traffic class", 0);
    SAY(send_int(fd, &echo, IPV6_TCLASS, -1));
    take(fd, "its default", 0);
    SAY(send_int(fd, &echo, IPV6_HOPLIMIT, 256));
    SAY(send_int(fd, &echo, IPV6_HOPLIMIT, -2));
    SAY(send_int(fd, &echo, IPV6_TCLASS, 256));
    SAY(send_int(fd, &echo, 250, 0));
    SAY(send_int(fd, &echo, IPV6_DONTFRAG, 2));
    length = 3000;
    SAY(send_int(fd, &echo, IPV6_DONTFRAG, 1));
    length = 1452;
    SAY(send_int(fd, &echo, IPV6_DONTFRAG, 1));
    sleep_ms(50), recv(fd, &byte, 1, MSG_DONTWAIT);
    length = 1;
    SAY(send_from(fd, &echo, own));
    take(fd, "from our own", 0);
    SAY(send_from(fd, &echo, "::"));
    take(fd, "from any", 0);
    SAY(send_from(fd, &echo, peer));
    SAY(send_from(fd, &echo, "fd99::1"));

    NOTE("errors");
    SAY(switch_on(fd, IPPROTO_IPV6, IPV6_RECVERR));
    SAY(sendto(fd, "closed", 6, 0, (void *)&closed, sizeof closed));
    sleep_ms(100);
    SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
    take(fd, "error queue", MSG_ERRQUEUE);
    take(fd, "error queue", MSG_ERRQUEUE);
    SAY(close(fd));

    NOTE("IPv4 on a socket of IPv6");
    fd = OPEN(socket(AF_INET6, SOCK_DGRAM, 0));
    self = at6(own_mapped, 8365);
    SAY(bind(fd, (void *)&self, sizeof self));
    SAY(switch_on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO));
    SAY(switch_on(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT));
    SAY(switch_on(fd, IPPROTO_IP, IP_RECVTTL));
    SAY(sendto(fd, "mapped", 6, 0, (void *)&echo4, sizeof echo4));
    take(fd, "mapped", 0);
    SAY(send_from(fd, &echo4, own_mapped));
    take(fd, "from our own", 0);
    SAY(switch_on(fd, IPPROTO_IP, IP_RECVERR));
    SAY(sendto(fd, "closed", 6, 0, (void *)&closed4, sizeof closed4));
    sleep_ms(100);
    take(fd, "error queue", MSG_ERRQUEUE);
    SAY(close(fd));

    NOTE("the path's MTU");
    unsigned char told[64];
    socklen_t told_len = sizeof told;
    fd = OPEN(socket(AF_INET6, SOCK_DGRAM, 0));
    SAY(getsockopt(fd, IPPROTO_IPV6, IPV6_PATHMTU, told, &told_len));
    SAY(connect(fd, (void *)&echo, sizeof echo));
    SAY(getsockopt(fd, IPPROTO_IPV6, IPV6_PATHMTU, told, &told_len));
    NOTE("%u bytes, %u", told_len, *(unsigned *)(told + 28));
    SAY(close(fd));
}
