/* Errors that come back for datagrams: as the socket's error, and in its error queue. */
#include "t.h"
#include <linux/errqueue.h>
#include <netinet/in.h>

static void say_events(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    int n = poll(&p, 1, ms);
    printf("%d ", n);
    say_poll("events", p.revents);
}

/* Takes one entry of the error queue with room for `len` bytes of payload. */
static void take(int fd, int len, int flags) {
    char buf[2048] = "", place[256];
    struct sockaddr_in to = {0};
    struct iovec in = {buf, len};
    struct msghdr message = {&to, sizeof to, &in, 1, place, sizeof place};
    ssize_t n = recvmsg(fd, &message, MSG_ERRQUEUE | flags);
    if (n < 0) {
        NOTE("error queue: %s", name_of(errno));
        return;
    }
    NOTE("error queue: \"%.*s\" to %s:%d%s%s", (int)n, buf, inet_ntoa(to.sin_addr),
         ntohs(to.sin_port), message.msg_flags & MSG_ERRQUEUE ? ", MSG_ERRQUEUE" : "",
         message.msg_flags & MSG_TRUNC ? ", MSG_TRUNC" : "");
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL)
            NOTE("  IP_TTL %d", *(int *)CMSG_DATA(c));
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
            NOTE("  IP_TOS %d", *(unsigned char *)CMSG_DATA(c));
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
            NOTE("  IP_PKTINFO %s", inet_ntoa(((struct in_pktinfo *)CMSG_DATA(c))->ipi_addr));
        if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVERR) continue;
        struct sock_extended_err *e = (void *)CMSG_DATA(c);
        struct sockaddr_in *who = (void *)SO_EE_OFFENDER(e);
        NOTE("  %zu bytes: %s origin %d type %d code %d info %u data %u", c->cmsg_len,
             name_of(e->ee_errno), e->ee_origin, e->ee_type, e->ee_code, e->ee_info, e->ee_data);
        NOTE("  from family %d, %s", who->sin_family, inet_ntoa(who->sin_addr));
    }
}

static int set(int fd, int name, int value) {
    return setsockopt(fd, IPPROTO_IP, name, &value, sizeof value);
}

int main(void) {
    char buf[64];
    struct sockaddr_in closed = at(peer_ip(), 7999), other = at(peer_ip(), 7998),
                       open = at(peer_ip(), 7001);
    struct sockaddr_in nobody = at(getenv("NOBODY_IP"), 7001);
    int fd = OPEN(socket(AF_INET, SOCK_DGRAM, 0)), value;
    socklen_t len = sizeof value;

    NOTE("not connected, without IP_RECVERR");
    SAY(sendto(fd, "x", 1, 0, (void *)&closed, sizeof closed));
    say_events(fd, 200);
    SAY(so_error(fd));
    take(fd, 100, 0);

    NOTE("not connected, with it");
    SAY(set(fd, IP_RECVERR, 1));
    SAY(getsockopt(fd, IPPROTO_IP, IP_RECVERR, &value, &len));
    SAY(value);
    SAY(sendto(fd, "first", 5, 0, (void *)&closed, sizeof closed));
    say_events(fd, 1000);
    SAY(recv(fd, buf, sizeof buf, MSG_DONTWAIT));
    say_events(fd, 0);
    SAY(recv(fd, buf, sizeof buf, MSG_DONTWAIT));
    take(fd, 100, 0);
    say_events(fd, 0);
    take(fd, 100, 0);

    NOTE("two of them");
    SAY(sendto(fd, "one", 3, 0, (void *)&closed, sizeof closed));
    sleep_ms(100);
    SAY(so_error(fd));
    SAY(sendto(fd, "two", 3, 0, (void *)&other, sizeof other));
    sleep_ms(100);
    take(fd, 100, 0);
    SAY(so_error(fd));
    say_events(fd, 0);
    take(fd, 2, MSG_PEEK);
    SAY(so_error(fd));
    say_events(fd, 0);

    NOTE("an error keeps a send back once");
    SAY(sendto(fd, "x", 1, 0, (void *)&closed, sizeof closed));
    sleep_ms(100);
    SAY(sendto(fd, "y", 1, 0, (void *)&open, sizeof open));
    SAY(sendto(fd, "z", 1, 0, (void *)&open, sizeof open));
    readable(fd);
    SAY(recv(fd, buf, sizeof buf, 0));
    take(fd, 100, 0);

    NOTE("with the header of what brought it");
    SAY(set(fd, IP_RECVTTL, 1));
    SAY(set(fd, IP_RECVTOS, 1));
    SAY(set(fd, IP_PKTINFO, 1));
    SAY(sendto(fd, "x", 1, 0, (void *)&closed, sizeof closed));
    sleep_ms(100);
    take(fd, 100, 0);

    NOTE("a host that is not there");
    SAY(sendto(fd, "anybody?", 8, 0, (void *)&nobody, sizeof nobody));
    say_events(fd, 5000);
    take(fd, 100, 0);
    SAY(so_error(fd));

    NOTE("switched off");
    SAY(sendto(fd, "x", 1, 0, (void *)&closed, sizeof closed));
    sleep_ms(100);
    SAY(set(fd, IP_RECVERR, 0));
    take(fd, 100, 0);
    SAY(so_error(fd));
    SAY(close(fd));

    NOTE("connected");
    fd = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
    SAY(connect_to(fd, peer_ip(), 7999));
    SAY(send(fd, "x", 1, 0));
    say_events(fd, 1000);
    SAY(so_error(fd));
    SAY(so_error(fd));
    SAY(send(fd, "x", 1, 0));
    sleep_ms(100);
    SAY(send(fd, "x", 1, 0));
    SAY(set(fd, IP_RECVERR, 1));
    SAY(send(fd, "told", 4, 0));
    sleep_ms(100);
    take(fd, 100, 0);
    say_events(fd, 0);
    SAY(close(fd));

    NOTE("connected to a host that is not there");
    fd = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
    SAY(connect_to(fd, getenv("NOBODY_IP"), 7001));
    SAY(send(fd, "x", 1, 0));
    say_events(fd, 5000);
    SAY(so_error(fd));
    SAY(close(fd));
}
