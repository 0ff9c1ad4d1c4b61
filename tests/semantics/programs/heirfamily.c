/* Options of IPv6, lists of sources, IP_UNICAST_IF and a chooser of SO_REUSEPORT in programs that
 * get the sockets by exec, posix_spawn and in a message (SCM_RIGHTS); the first program has waited
 * on them before, or not. */
#include "t.h"
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <spawn.h>

#define GROUP "239.9.9.61"
#define GROUP6 "ff15::9:61"
#ifndef IPV6_UNICAST_IF
#define IPV6_UNICAST_IF 76
#endif
#ifndef IPV6_MINHOPCOUNT
#define IPV6_MINHOPCOUNT 73
#endif
#ifndef IPV6_RECVORIGDSTADDR
#define IPV6_RECVORIGDSTADDR 74
#endif
#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif
enum { FIRST = 50, CHANNEL = 60, SOCKETS = 5 };
static char self[256];

struct option {
    const char *text;
    int level, name, value;
};
#define OPTION(level, name, value) {#name, level, name, value}
static const struct option of_ipv6[] = {
    OPTION(IPPROTO_IPV6, IPV6_V6ONLY, 1),          OPTION(IPPROTO_IPV6, IPV6_TCLASS, 0x28),
    OPTION(IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33),   OPTION(IPPROTO_IPV6, IPV6_RECVPKTINFO, 1),
    OPTION(IPPROTO_IPV6, IPV6_RECVTCLASS, 1),      OPTION(IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1),
    OPTION(IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 7),  OPTION(IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0),
    OPTION(IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0),   OPTION(IPPROTO_IPV6, IPV6_DONTFRAG, 1),
    OPTION(IPPROTO_IPV6, IPV6_RECVERR, 1),         OPTION(IPPROTO_IPV6, IPV6_MINHOPCOUNT, 9),
    OPTION(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO),
    OPTION(IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1), OPTION(SOL_SOCKET, SO_RCVMARK, 1),
};
static const struct option of_stream[] = {
    OPTION(IPPROTO_IPV6, IPV6_V6ONLY, 1),
    OPTION(IPPROTO_IPV6, IPV6_TCLASS, 0x28),
    OPTION(IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33),
    OPTION(IPPROTO_IPV6, IPV6_MINHOPCOUNT, 9),
    OPTION(IPPROTO_TCP, TCP_NODELAY, 1),
};
static const struct option of_ipv4[] = {
    OPTION(IPPROTO_IP, IP_TTL, 33),
    OPTION(IPPROTO_IP, IP_TOS, 0x28),
    OPTION(IPPROTO_IP, IP_MULTICAST_TTL, 7),
    OPTION(IPPROTO_IP, IP_RECVTTL, 1),
};
#define EACH(all) for (const struct option *o = all; o < all + sizeof all / sizeof *all; o++)

static int bound6(int kind, int port) {
    int fd = socket(AF_INET6, kind, 0);
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, getenv("OWN_IP6"), &own.sin6_addr);
    if (kind == SOCK_STREAM) EACH(of_stream) setsockopt(fd, o->level, o->name, &o->value, 4);
    else EACH(of_ipv6) setsockopt(fd, o->level, o->name, &o->value, 4);
    SAY(bind(fd, (void *)&own, sizeof own));
    return fd;
}

/* By the first byte, a digit. */
static int grouped(int port) {
    struct sock_filter code[] = {{0x30, 0, 0, 0}, {0x14, 0, 0, '0'}, {0x16, 0, 0, 0}};
    struct sock_fprog program = {3, code};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    SAY(bind_to(fd, own_ip(), port));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program));
    return fd;
}

static void make(int *fds, int port) {
    int index = if_nametoindex("ss0"), wide = htonl(index);
    struct in_addr own = {inet_addr(own_ip())};
    fds[0] = bound6(SOCK_DGRAM, port);
    SAY(setsockopt(fds[0], IPPROTO_IPV6, IPV6_UNICAST_IF, &wide, 4));
    SAY(setsockopt(fds[0], IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, 4));
    for (int i = 1; i < 4; i++) {
        struct group_source_req listed = {.gsr_interface = index};
        struct sockaddr_in6 *group = (void *)&listed.gsr_group;
        struct sockaddr_in6 *source = (void *)&listed.gsr_source;
        group->sin6_family = source->sin6_family = AF_INET6;
        inet_pton(AF_INET6, GROUP6, &group->sin6_addr);
        inet_pton(AF_INET6, getenv("PEER_IP6"), &source->sin6_addr);
        source->sin6_addr.s6_addr[15] = i;
        SAY(setsockopt(fds[0], IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, &listed, sizeof listed));
    }
    fds[1] = bound6(SOCK_STREAM, port), SAY(listen(fds[1], 5));
    fds[2] = socket(AF_INET, SOCK_DGRAM, 0);
    EACH(of_ipv4) setsockopt(fds[2], o->level, o->name, &o->value, 4);
    SAY(bind_to(fds[2], "0.0.0.0", port + 1));
    SAY(setsockopt(fds[2], IPPROTO_IP, IP_UNICAST_IF, &wide, 4));
    SAY(setsockopt(fds[2], IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own));
    for (int i = 0; i < 2; i++) {
        struct in_addr source = {inet_addr(i ? own_ip() : "1.2.3.4")};
        struct ip_mreq_source listed = {{inet_addr(GROUP)}, own, source};
        SAY(setsockopt(fds[2], IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &listed, sizeof listed));
    }
    fds[3] = grouped(port + 2), fds[4] = grouped(port + 2);
}

static void interface(int fd, const char *what, int level, int name, int is_wide) {
    int value = -1;
    socklen_t len = sizeof value;
    getsockopt(fd, level, name, &value, &len);
    int index = is_wide ? ntohl(value) : value;
    NOTE("%s: %s", what, index == if_nametoindex("ss0") ? "ours" : "another");
}

static void lists(int fd, int fd6) {
    char room[GROUP_FILTER_SIZE(8)] = {0}, narrow[IP_MSFILTER_SIZE(8)] = {0};
    struct group_filter *wide = (void *)room;
    struct ip_msfilter *list = (void *)narrow;
    struct sockaddr_in6 *group = (void *)&wide->gf_group;
    socklen_t len = sizeof narrow;
    list->imsf_multiaddr.s_addr = inet_addr(GROUP);
    list->imsf_interface.s_addr = inet_addr(own_ip());
    list->imsf_numsrc = 8;
    long result = getsockopt(fd, IPPROTO_IP, IP_MSFILTER, list, &len);
    NOTE("sources: %ld, mode %u, %u", result, list->imsf_fmode, list->imsf_numsrc);
    for (unsigned i = 0; !result && i < list->imsf_numsrc; i++)
        NOTE("  %s", inet_ntoa(list->imsf_slist[i]));
    len = sizeof room;
    wide->gf_interface = if_nametoindex("ss0"), wide->gf_numsrc = 8;
    group->sin6_family = AF_INET6, inet_pton(AF_INET6, GROUP6, &group->sin6_addr);
    result = getsockopt(fd6, IPPROTO_IPV6, MCAST_MSFILTER, wide, &len);
    NOTE("sources of IPv6: %ld, mode %u, %u", result, wide->gf_fmode, wide->gf_numsrc);
}

/* Which of two sockets gets what begins with a digit. */
static void choice(int *fds, int port) {
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at(own_ip(), port);
    struct pollfd all[2] = {{fds[0], POLLIN}, {fds[1], POLLIN}};
    char byte;
    bind_to(out, own_ip(), port + 20);
    poll(all, 2, 0);
    for (const char *c = "01100101"; *c; c++) {
        sendto(out, c, 1, 0, (void *)&to, sizeof to);
        if (poll(all, 2, 1000) < 1) NOTE("nobody has %c", *c);
        for (int i = 0; i < 2; i++)
            if (all[i].revents & POLLIN && recv(fds[i], &byte, 1, 0) == 1 && byte != '0' + i)
                NOTE("%d has %c", i, byte);
    }
    close(out);
}

static void heir(int *fds, int port) {
    struct timeval wait = {0, 500000};
    struct in_addr own = {inet_addr(own_ip())};
    struct sockaddr_in group = at(GROUP, port + 1);
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    char got[8];
    sleep_ms(50);
    EACH(of_ipv6) say_option(o->text, fds[0], o->level, o->name);
    interface(fds[0], "IPV6_UNICAST_IF", IPPROTO_IPV6, IPV6_UNICAST_IF, 1);
    interface(fds[0], "IPV6_MULTICAST_IF", IPPROTO_IPV6, IPV6_MULTICAST_IF, 0);
    EACH(of_stream) say_option(o->text, fds[1], o->level, o->name);
    say_option("SO_ACCEPTCONN", fds[1], SOL_SOCKET, SO_ACCEPTCONN);
    EACH(of_ipv4) say_option(o->text, fds[2], o->level, o->name);
    interface(fds[2], "IP_UNICAST_IF", IPPROTO_IP, IP_UNICAST_IF, 1);
    lists(fds[2], fds[0]);
    setsockopt(fds[2], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(out, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own);
    recv(fds[2], got, sizeof got, MSG_DONTWAIT);
    bind_to(out, own_ip(), port + 20);
    SAY(sendto(out, "xyz", 3, 0, (void *)&group, sizeof group));
    SAY(recv(fds[2], got, sizeof got, 0));
    close(out);
    choice(fds + 3, port + 2);
}

static void pass(int way, int port, int is_waited_on) {
    char text[8], byte;
    int fds[SOCKETS], pair[2], status = -1;
    const char *names[] = {"exec", "posix_spawn", "a message"};
    NOTE("== %s%s", names[way], is_waited_on ? ", waited on" : "");
    snprintf(text, sizeof text, "%d", port);
    make(fds, port);
    for (int i = 0; i < SOCKETS && is_waited_on; i++)
        if (i != 1) SAY(recv(fds[i], &byte, 1, MSG_DONTWAIT));
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t child = -1;
    if (way == 1) {
        char *words[] = {self, "has", text, 0};
        extern char **environ;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        for (int i = 0; i < SOCKETS; i++) {
            fcntl(fds[i], F_SETFD, FD_CLOEXEC);
            posix_spawn_file_actions_adddup2(&actions, fds[i], FIRST + i);
        }
        posix_spawn(&child, self, &actions, 0, words, environ);
    } else if (!(child = fork())) {
        for (int i = 0; i < SOCKETS && way == 0; i++) dup2(fds[i], FIRST + i);
        for (int i = 0; i < SOCKETS; i++) close(fds[i]);
        dup2(pair[1], CHANNEL), close(pair[0]), close(pair[1]);
        execl(self, self, way ? "takes" : "has", text, NULL), _exit(98);
    }
    for (int i = 0; i < SOCKETS; i++) {
        if (way == 2) send_fd(pair[0], fds[i]);
        close(fds[i]);
    }
    close(pair[0]), close(pair[1]);
    waitpid(child, &status, 0);
    NOTE("ended: %d", status);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        int fds[SOCKETS], takes = !strcmp(argv[1], "takes");
        for (int i = 0; i < SOCKETS; i++) fds[i] = takes ? receive_fd(CHANNEL) : FIRST + i;
        return heir(fds, atoi(argv[2])), 0;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    for (int way = 0; way < 3; way++)
        for (int waits = 0; waits < 2; waits++) pass(way, 8830 + 3 * (2 * way + waits), waits);
}
