/* The error queue beside what the network sends back: datagrams that are too large, MSG_ZEROCOPY,
 * SO_TIMESTAMPING. */
#include "t.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/udp.h>

static void say_queue(const char *what, int fd) {
    char control[512], bytes[2048];
    struct sockaddr_storage from = {0};
    struct iovec in = {bytes, sizeof bytes};
    struct msghdr m = {.msg_name = &from,
                       .msg_namelen = sizeof from,
                       .msg_iov = &in,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof control};
    long n = recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (n < 0) { NOTE("%s: %s", what, name_of(errno)); return; }
    NOTE("%s: flags %s", what, m.msg_flags & MSG_ERRQUEUE ? "ERRQUEUE" : "none");
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level == SOL_SOCKET) {
            struct timespec *t = (void *)CMSG_DATA(c);
            NOTE("  stamp %d: %s %d %d", c->cmsg_type,
                 labs(t[0].tv_sec - time(0)) < 5 ? "now" : "another time", (int)t[1].tv_sec,
                 (int)t[2].tv_sec);
        } else {
            struct sock_extended_err *e = (void *)CMSG_DATA(c);
            NOTE("  level %d type %d len %d: errno %d origin %d type %d code %d info %u data %u",
                 c->cmsg_level, c->cmsg_type, (int)c->cmsg_len, e->ee_errno, e->ee_origin,
                 e->ee_type, e->ee_code, e->ee_info, e->ee_data);
            if (e->ee_origin == SO_EE_ORIGIN_LOCAL) {
                struct sockaddr_in *four = (void *)&from;
                char text[64];
                inet_ntop(from.ss_family,
                          from.ss_family == AF_INET
                              ? (void *)&four->sin_addr
                              : (void *)&((struct sockaddr_in6 *)&from)->sin6_addr,
                          text, sizeof text);
                NOTE("  to %s port %d", text, ntohs(four->sin_port));
            }
        }
    }
}

static void too_long(int family, int is_connected) {
    static char large[9000];
    int fd = socket(family, SOCK_DGRAM, 0), on = 1, probe = IP_PMTUDISC_DO;
    int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    struct sockaddr_in to = at(peer_ip(), 7001);
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(7011)};
    inet_pton(AF_INET6, getenv("PEER_IP6"), &to6.sin6_addr);
    struct sockaddr *addr = family == AF_INET ? (void *)&to : (void *)&to6;
    socklen_t len = family == AF_INET ? sizeof to : sizeof to6;
    SAY(setsockopt(fd, level, family == AF_INET ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe,
                   sizeof probe));
    if (is_connected) SAY(connect(fd, addr, len));
    SAY(sendto(fd, large, sizeof large, 0, addr, len));
    say_queue("not asked for", fd);
    SAY(setsockopt(fd, level, family == AF_INET ? IP_RECVERR : IPV6_RECVERR, &on, sizeof on));
    SAY(is_connected ? send(fd, large, sizeof large, 0)
                     : sendto(fd, large, sizeof large, 0, addr, len));
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, 1, 0));
    say_poll("too long", p.revents);
    SAY(so_error(fd));
    say_queue("asked for", fd);
    say_queue("and no more", fd);
    SAY(poll(&p, 1, 0));
    /* Cut into parts that are too large, and gathered from pieces. */
    int size = 2000;
    SAY(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
    SAY(is_connected ? send(fd, large, sizeof large, 0)
                     : sendto(fd, large, sizeof large, 0, addr, len));
    say_queue("parts", fd);
    size = 0;
    SAY(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
    for (int piece = 0; piece < 2; piece++)
        SAY(is_connected ? send(fd, large, 1000, MSG_MORE)
                         : sendto(fd, large, 1000, MSG_MORE, addr, len));
    say_queue("pieces", fd);
    close(fd);
}

static void zerocopy(int fd, const char *what) {
    int on = 1;
    char buf[64];
    NOTE("zero copy, %s", what);
    SAY(send(fd, "abc", 3, MSG_ZEROCOPY));
    say_queue("not switched on", fd);
    SAY(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    SAY(send(fd, "def", 3, MSG_ZEROCOPY));
    SAY(send(fd, "ghi", 3, MSG_ZEROCOPY));
    sleep_ms(100);
    struct pollfd p = {fd, 0, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("done", p.revents);
    char control[128];
    struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
    unsigned first = ~0u, last = 0;
    while (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) == 0) {
        struct sock_extended_err *e = (void *)CMSG_DATA(CMSG_FIRSTHDR(&m));
        if (e->ee_origin != SO_EE_ORIGIN_ZEROCOPY || e->ee_errno)
            NOTE("origin %d, errno %d", e->ee_origin, e->ee_errno);
        if (e->ee_info < first) first = e->ee_info;
        if (e->ee_data > last) last = e->ee_data;
        m.msg_controllen = sizeof control;
    }
    NOTE("completed %u to %u", first, last);
    SAY(poll(&p, 1, 0));
    long got = 0, n;
    for (int i = 0; i < 3 && got < 9; i++) {
        readable(fd);
        if ((n = recv(fd, buf + got, sizeof buf - got, MSG_DONTWAIT)) > 0) got += n;
    }
    NOTE("%.*s", (int)got, buf);
    close(fd);
}

static void stamps(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0),
        set = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    NOTE("stamps");
    receive_stamps_begin();
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &set, sizeof set));
    SAY(send(fd, "x", 1, 0));
    readable(fd);
    char control[256], byte;
    struct iovec in = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    SAY(recvmsg(fd, &m, 0));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    NOTE("received: %s", c && c->cmsg_type == SCM_TIMESTAMPING &&
                                 labs(((struct timespec *)CMSG_DATA(c))->tv_sec - time(0)) < 5
                             ? "stamped"
                             : "not stamped");
    say_queue("nothing sent was asked for", fd);
    set = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID |
          SOF_TIMESTAMPING_OPT_TSONLY;
    SAY(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &set, sizeof set));
    for (int i = 0; i < 2; i++) {
        SAY(send(fd, "y", 1, 0));
        struct pollfd p = {fd, 0, 0};
        SAY(poll(&p, 1, 1000));
        say_poll("sent", p.revents);
        say_queue("sent", fd);
    }
    int on = 1;
    SAY(setsockopt(fd, SOL_SOCKET, SO_SELECT_ERR_QUEUE, &on, sizeof on));
    SAY(send(fd, "z", 1, 0));
    struct pollfd p = {fd, POLLPRI, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("selected", p.revents & ~POLLIN);
    say_queue("sent", fd);
    set = 1 << 30;
    SAY(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &set, sizeof set));
    close(fd);
}

int main(void) {
    too_long(AF_INET, 0);
    too_long(AF_INET, 1);
    too_long(AF_INET6, 0);
    too_long(AF_INET6, 1);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect_to(fd, peer_ip(), 7001);
    zerocopy(fd, "datagrams");
    zerocopy(tcp(7001), "a stream");
    stamps();
}
