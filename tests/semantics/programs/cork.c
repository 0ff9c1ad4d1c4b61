/* UDP_CORK and MSG_MORE: pieces that leave as one datagram. */
#include "t.h"
#include <netinet/in.h>
#include <netinet/udp.h>

static char big[70000];

/* What came back: its length, its beginning and who sent it. */
static void answer(int fd) {
    char buf[65536], name[INET6_ADDRSTRLEN];
    struct sockaddr_in6 from;
    socklen_t len = sizeof from;
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, 150) != 1) {
        NOTE("  no answer");
        return;
    }
    ssize_t n = recvfrom(fd, buf, sizeof buf, MSG_DONTWAIT, (void *)&from, &len);
    if (n < 0) NOTE("  %s", name_of(errno));
    else NOTE("  %zd bytes: %.*s from %d", n, (int)(n > 20 ? 20 : n), buf, ntohs(from.sin6_port));
}

static int cork(int fd, int on) { return setsockopt(fd, SOL_UDP, UDP_CORK, &on, sizeof on); }

static int is_corked(int fd) {
    int on = -1;
    socklen_t len = sizeof on;
    return getsockopt(fd, SOL_UDP, UDP_CORK, &on, &len) ? -1 : on;
}

static ssize_t send_at(int fd, const char *text, int port, int flags) {
    struct sockaddr_in to = at(peer_ip(), port);
    return sendto(fd, text, strlen(text), flags, (void *)&to, sizeof to);
}

static struct sockaddr_in6 at6(const char *ip, int port) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, ip, &to.sin6_addr);
    return to;
}

static ssize_t send_at6(int fd, const char *text, const char *ip, int port, int flags) {
    struct sockaddr_in6 to = at6(ip, port);
    return sendto(fd, text, strlen(text), flags, (void *)&to, sizeof to);
}

static int connected(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (connect_to(fd, peer_ip(), port)) NOTE("connect: %s", name_of(errno)), exit(1);
    return fd;
}

static void gathers(void) {
    int fd = connected(7001);
    SAY(send(fd, "one,", 4, MSG_MORE));
    SAY(send(fd, "two,", 4, MSG_MORE));
    answer(fd);
    SAY(send(fd, "three", 5, 0));
    answer(fd);
    SAY(cork(fd, 1)), SAY(is_corked(fd));
    SAY(write(fd, "a", 1)), SAY(send(fd, "b", 1, 0)), SAY(send(fd, "", 0, 0));
    answer(fd);
    SAY(cork(fd, 1));
    answer(fd);
    SAY(cork(fd, 0)), SAY(is_corked(fd));
    answer(fd);
    NOTE("nothing is pending"), SAY(cork(fd, 0));
    answer(fd);
    NOTE("empty pieces"), SAY(send(fd, "", 0, MSG_MORE)), SAY(send(fd, "", 0, 0));
    answer(fd);
    NOTE("no piece at the end"), SAY(send(fd, "x", 1, MSG_MORE)), SAY(cork(fd, 0));
    answer(fd);
    NOTE("out of band"), SAY(send(fd, "x", 1, MSG_MORE)), SAY(send(fd, "y", 1, MSG_OOB)),
        SAY(send(fd, "z", 1, 0));
    answer(fd);
    close(fd);
}

static void lengths(void) {
    int fd = connected(7001), discover = IP_PMTUDISC_DO, usual = IP_PMTUDISC_WANT;
    NOTE("all that there may be");
    SAY(send(fd, big, 65000, MSG_MORE)), SAY(send(fd, big, 507, 0));
    answer(fd);
    NOTE("a byte more");
    SAY(send(fd, big, 65000, MSG_MORE)), SAY(send(fd, big, 508, 0));
    answer(fd);
    SAY(send(fd, "next", 4, 0));
    answer(fd);
    NOTE("a byte more and more");
    SAY(send(fd, big, 65000, MSG_MORE)), SAY(send(fd, big, 508, MSG_MORE)),
        SAY(send(fd, "next", 4, 0));
    answer(fd);
    NOTE("too long by itself");
    SAY(send(fd, "x", 1, MSG_MORE)), SAY(send(fd, big, 65508, 0)), SAY(send(fd, "y", 1, 0));
    answer(fd);
    SAY(send(fd, "x", 1, MSG_MORE)), SAY(send(fd, big, 65536, 0)), SAY(send(fd, "y", 1, 0));
    answer(fd);
    SAY(send(fd, big, 65508, MSG_MORE)), SAY(send(fd, "y", 1, 0));
    answer(fd);
    NOTE("not to be cut");
    SAY(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover));
    SAY(send(fd, big, 1000, MSG_MORE)), SAY(send(fd, big, 472, 0));
    answer(fd);
    SAY(send(fd, big, 1000, MSG_MORE)), SAY(send(fd, big, 473, 0));
    answer(fd);
    NOTE("a choice made between");
    SAY(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &usual, sizeof usual));
    SAY(send(fd, big, 1000, MSG_MORE));
    SAY(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover));
    SAY(send(fd, big, 473, 0));
    answer(fd);
    close(fd);
}

static void destinations(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), value;
    struct sockaddr_in bad = {.sin_family = 77};
    SAY(send(fd, "x", 1, MSG_MORE));
    NOTE("the first address counts");
    SAY(send_at(fd, "a", 7001, MSG_MORE)), SAY(send_at(fd, "b", 7002, MSG_MORE)),
        SAY(send(fd, "c", 1, 0));
    answer(fd), answer(fd);
    SAY(send_at(fd, "d", 7002, MSG_MORE)), SAY(send_at(fd, "e", 0, MSG_MORE));
    SAY(sendto(fd, "f", 1, 0, (void *)&bad, sizeof bad));
    answer(fd), answer(fd);
    NOTE("a connection in between");
    SAY(send_at(fd, "g", 7001, MSG_MORE)), SAY(connect_to(fd, peer_ip(), 7002)),
        SAY(send(fd, "h", 1, 0));
    answer(fd), answer(fd);
    SAY(send(fd, "i", 1, MSG_MORE)), SAY(connect_to(fd, peer_ip(), 7001)), SAY(cork(fd, 0));
    answer(fd), answer(fd);
    close(fd), fd = socket(AF_INET, SOCK_DGRAM, 0);
    NOTE("options of the first piece");
    value = 77, SAY(setsockopt(fd, IPPROTO_IP, IP_TTL, &value, sizeof value));
    SAY(send_at(fd, "j", 7004, MSG_MORE));
    value = 78, SAY(setsockopt(fd, IPPROTO_IP, IP_TTL, &value, sizeof value));
    SAY(send(fd, "k", 1, 0));
    answer(fd);
    close(fd);
}

static void ends(void) {
    int fd = connected(7001);
    NOTE("shut down between"), SAY(send(fd, "a", 1, MSG_MORE)), SAY(shutdown(fd, SHUT_WR));
    SAY(send(fd, "b", 1, 0)), SAY(send(fd, "c", 1, MSG_NOSIGNAL)),
        SAY(send(fd, "c", 1, MSG_MORE | MSG_NOSIGNAL));
    answer(fd);
    close(fd), fd = connected(7001);
    NOTE("closed"), SAY(send(fd, "a", 1, MSG_MORE)), SAY(close(fd));
    fd = connected(7999);
    NOTE("an error between"), SAY(send(fd, "a", 1, 0)), readable(fd);
    SAY(send(fd, "b", 1, MSG_MORE)), SAY(send(fd, "c", 1, MSG_MORE)), sleep_ms(50),
        SAY(so_error(fd));
    SAY(cork(fd, 0)), readable(fd), SAY(so_error(fd));
    SAY(send(fd, "d", 1, 0)), readable(fd), SAY(send(fd, "e", 1, MSG_MORE)),
        SAY(send(fd, "f", 1, 0));
    readable(fd), SAY(so_error(fd));
    SAY(send(fd, "d", 1, MSG_MORE)), SAY(so_error(fd)), SAY(send(fd, "e", 1, 0));
    readable(fd), SAY(so_error(fd));
    close(fd);
}

static void segments(void) {
    int fd = connected(7001), size = 4;
    NOTE("segments"), SAY(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size));
    SAY(send(fd, "abc", 3, MSG_MORE)), SAY(send(fd, "def", 3, 0));
    answer(fd), answer(fd), answer(fd);
    SAY(send(fd, big, 400, MSG_MORE)), SAY(send(fd, big, 200, 0)), SAY(send(fd, "xyz", 3, 0));
    answer(fd), answer(fd);
    close(fd);
}

static void several(void) {
    int fd = connected(7001);
    struct iovec in[] = {{"one", 3}, {"two", 3}, {"three", 5}};
    struct mmsghdr all[] = {{{.msg_iov = in, .msg_iovlen = 2}},
                            {{.msg_iov = in + 2, .msg_iovlen = 1}}};
    NOTE("sendmmsg"), SAY(sendmmsg(fd, all, 2, MSG_MORE)),
        NOTE("%u %u", all[0].msg_len, all[1].msg_len);
    SAY(writev(fd, in, 3));
    answer(fd);
    int other = dup(fd);
    NOTE("another number"), SAY(send(fd, "one", 3, MSG_MORE)), SAY(send(other, "two", 3, 0));
    answer(fd);
    close(other), close(fd);
}

static void mapped(void) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    char four[64];
    snprintf(four, sizeof four, "::ffff:%s", peer_ip());
    const char *six = getenv("PEER_IP6");
    NOTE("IPv6"), SAY(send_at6(fd, "a", six, 7011, MSG_MORE)), SAY(send(fd, "b", 1, 0));
    answer(fd);
    SAY(send_at6(fd, "a", six, 7011, MSG_MORE)), SAY(send_at6(fd, "b", six, 7012, 0));
    answer(fd);
    NOTE("mapped, and not"), SAY(send_at6(fd, "a", four, 7001, MSG_MORE)),
        SAY(send_at6(fd, "b", six, 7011, 0));
    answer(fd);
    SAY(send_at6(fd, "a", six, 7011, MSG_MORE)), SAY(send_at6(fd, "b", four, 7001, 0)),
        SAY(cork(fd, 0));
    answer(fd);
    struct sockaddr_in6 to = at6(six, 7001);
    NOTE("a connection in between"), SAY(send_at6(fd, "a", six, 7011, MSG_MORE));
    SAY(connect(fd, (void *)&to, sizeof to)), SAY(send(fd, "b", 1, 0));
    answer(fd);
    close(fd);
}

/* Pieces that begin on the loopback stay there. */
static void loopback(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in local = at("127.0.0.1", 8391);
    char buf[64];
    SAY(bind_to(to, "127.0.0.1", 8391));
    SAY(sendto(fd, "a", 1, MSG_MORE, (void *)&local, sizeof local));
    SAY(send_at(fd, "b", 7001, 0));
    readable(to);
    ssize_t n = SAY(recv(to, buf, sizeof buf, MSG_DONTWAIT));
    NOTE("%.*s", (int)(n > 0 ? n : 0), buf);
    SAY(send_at(fd, "c", 7001, MSG_MORE));
    SAY(sendto(fd, "d", 1, 0, (void *)&local, sizeof local));
    answer(fd);
    SAY(cork(fd, 1));
    SAY(sendto(fd, "e", 1, 0, (void *)&local, sizeof local));
    SAY(cork(fd, 0));
    SAY(send_at(fd, "f", 7001, 0));
    answer(fd);
    SAY(recv(to, buf, sizeof buf, MSG_DONTWAIT));
    close(fd), close(to);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    memset(big, '#', sizeof big);
    gathers(), lengths(), destinations(), ends(), segments(), several(), mapped(), loopback();
    return 0;
}
