/* The calls of a member that name an address, or tell one: of UDP sockets, and of connections that
 * begin. */

#define _GNU_SOURCE

#include "member.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* From here on the kernel chooses ports; they are not told. */
enum { CHOSEN_PORTS = 10000 };

/* The sender of the thread's last datagram. */
static __thread struct sockaddr_in sender;

static int connects(int fd, const char *ip, int port, int flags) {
    struct sockaddr_in addr = inet(ip, port);
    placed(socket(AF_INET, SOCK_STREAM | flags, 0), fd);
    return connect(fd, (void *)&addr, sizeof addr);
}

/* Connects a socket that is there, or, without an address, disconnects it. */
static int reconnects(int fd, const char *ip, int port) {
    struct sockaddr_in addr = inet(ip ? ip : "0.0.0.0", port);
    if (!ip) addr.sin_family = AF_UNSPEC;
    return connect(fd, (void *)&addr, sizeof addr);
}

static int binds(int fd, const char *ip, int port) {
    struct sockaddr_in addr = inet(ip, port);
    return bind(fd, (void *)&addr, sizeof addr);
}

/* A UDP socket, bound if there is an address; `option` is reuseaddr or reuseport. */
static int opens_udp(int fd, const char *ip, int port, const char *option) {
    int on = 1;
    placed(socket(AF_INET, SOCK_DGRAM, 0), fd);
    if (option) {
        int which = strcmp(option, "reuseport") ? SO_REUSEADDR : SO_REUSEPORT;
        setsockopt(fd, SOL_SOCKET, which, &on, sizeof on);
    }
    return ip ? binds(fd, ip, port) : 0;
}

static void tells(const struct sockaddr_in *addr) {
    char ip[INET_ADDRSTRLEN], *end = text + strlen(text);
    int port = ntohs(addr->sin_port);
    inet_ntop(AF_INET, &addr->sin_addr, ip, sizeof ip);
    if (port < CHOSEN_PORTS) sprintf(end, " %s:%d", ip, port);
    else sprintf(end, " %s:chosen", ip);
}

static int names(int fd, int is_peers) {
    struct sockaddr_in addr = {0};
    socklen_t len = sizeof addr;
    int result = is_peers ? getpeername(fd, (void *)&addr, &len)
                          : getsockname(fd, (void *)&addr, &len);
    if (result == 0) tells(&addr);
    return result;
}

long receives_from(int fd, size_t len, int flags) {
    struct iovec bytes = {text, len};
    struct msghdr message = {.msg_name = &sender, .msg_namelen = sizeof sender,
                             .msg_iov = &bytes, .msg_iovlen = 1};
    long count = said(recvmsg(fd, &message, flags));
    if (count >= 0 && message.msg_namelen) tells(&sender);
    if (count >= 0 && message.msg_flags & MSG_TRUNC) strcat(text, " cut");
    return count;
}

/* A datagram in two parts, to an address or to whom the socket is connected to. */
static long sends_parts(int fd, const char *ip, int port, const char *words) {
    struct sockaddr_in addr = inet(ip, port);
    struct iovec parts[] = {{(char *)words, 1}, {(char *)words + 1, strlen(words) - 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (port) message.msg_name = &addr, message.msg_namelen = sizeof addr;
    return sendmsg(fd, &message, MSG_DONTWAIT);
}

static long sends_to(int fd, struct sockaddr_in addr, const char *words) {
    return sendto(fd, words, strlen(words), MSG_DONTWAIT, (void *)&addr, sizeof addr);
}

#define IS(word) (!strcmp(call, word))

long called_with_address(const char *call, int fd, char **words) {
    int port = words[0] && words[1] ? atoi(words[1]) : 0;
    if (IS("connect")) return connects(fd, words[0], port, 0);
    if (IS("connect-begin")) return connects(fd, words[0], port, SOCK_NONBLOCK);
    if (IS("reconnect")) return reconnects(fd, words[0], port);
    if (IS("disconnect")) return reconnects(fd, NULL, 0);
    if (IS("udp")) return opens_udp(fd, words[0], port, words[0] && words[1] ? words[2] : NULL);
    if (IS("bind")) return binds(fd, words[0], port);
    if (IS("sendto")) return sends_to(fd, inet(words[0], port), words[2]);
    if (IS("sendmsg")) return sends_parts(fd, words[0], port, words[2]);
    if (IS("reply")) return sends_to(fd, sender, words[0]);
    if (IS("name")) return names(fd, 0);
    if (IS("peer-name")) return names(fd, 1);
    errno = ENOSYS;
    return -1;
}
