/* The calls that a member makes, and that end before the next one begins. */

#define _GNU_SOURCE

#include "member.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPT_MS = 400, WAIT_MS = 150, EPOLL_MS = 30, EVENTS = 8 };

__thread char text[ROOM + TOLD];

struct sockaddr_in inet(const char *ip, int port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    addr.sin_addr.s_addr = inet_addr(ip);
    return addr;
}

int placed(int fd, int number) {
    if (fd < 0) return -1;
    dup2(fd, number), close(fd);
    return 0;
}

static int listens(int fd, int port) {
    int on = 1;
    struct sockaddr_in addr = inet("0.0.0.0", port);
    placed(socket(AF_INET, SOCK_STREAM, 0), fd);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(fd, (void *)&addr, sizeof addr) ?: listen(fd, 8);
}

static int accepts(int fd, int number, int ms) {
    struct pollfd polled = {fd, POLLIN, 0};
    if (poll(&polled, 1, ms) == 1) return placed(accept(fd, NULL, NULL), number);
    errno = ETIMEDOUT;
    return -1;
}

/* An accept that does not wait. The connection does not block. */
static int accepts_now(int fd, int number) {
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    int got = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), error = errno;
    fcntl(fd, F_SETFL, flags);
    errno = error;
    return placed(got, number);
}

long said(long count) {
    text[count > 0 ? count : 0] = 0;
    return count;
}

/* A read that waits for a while; `from`: with the sender. */
static long waits_and_reads(int fd, size_t len, int ms, int from) {
    struct timeval wait = {ms / 1000, ms % 1000 * 1000}, none = {0, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    long count = from ? receives_from(fd, len, 0) : said(read(fd, text, len));
    int error = errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    errno = error;
    return count;
}

static int polls(int fd, short events, int ms) {
    struct pollfd polled = {fd, events, 0};
    int count = poll(&polled, 1, ms);
    sprintf(text, "%x", polled.revents);
    return count;
}

static int unread(int fd) {
    int count = -1, result = ioctl(fd, FIONREAD, &count);
    sprintf(text, "%d", count);
    return result;
}

static int option(int fd, const char *which, const char *value) {
    int is_nodelay = !strcmp(which, "nodelay"), is_error = !strcmp(which, "error");
    int level = is_nodelay ? IPPROTO_TCP : SOL_SOCKET;
    int option = is_nodelay ? TCP_NODELAY : is_error ? SO_ERROR : SO_KEEPALIVE;
    int now = value ? atoi(value) : -1;
    socklen_t len = sizeof now;
    if (value) return setsockopt(fd, level, option, &now, len);
    int result = getsockopt(fd, level, option, &now, &len);
    sprintf(text, "%d", now);
    return result;
}

static int blocks(int fd, int is_nonblocking) {
    int flags = fcntl(fd, F_GETFL);
    flags = is_nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return fcntl(fd, F_SETFL, flags);
}

static int flags_of(int fd) {
    int flags = fcntl(fd, F_GETFL);
    sprintf(text, "%x", flags);
    return flags < 0 ? -1 : 0;
}

static int peers_port(int fd) {
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;
    int result = getpeername(fd, (void *)&addr, &len);
    sprintf(text, "%d", result ? 0 : ntohs(addr.sin_port) != 0);
    return result;
}

static int watches(int set, int fd, const char *events) {
    struct epoll_event event = {(uint32_t)strtoul(events, NULL, 16), {.fd = fd}};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static int collects(int set, int ms) {
    struct epoll_event found[EVENTS];
    int count = epoll_wait(set, found, EVENTS, ms), len = 0;
    for (int fd = 0; fd < REQUESTS; fd++)
        for (int at = 0; at < count; at++)
            if (found[at].data.fd == fd)
                len += sprintf(text + len, "%d:%x,", fd, found[at].events);
    return count;
}

long called(const char *call, int fd, char **words) {
    int number = words[0] ? atoi(words[0]) : 0;
    /* How long a call waits that may be told. */
    int ms = words[0] && words[1] ? atoi(words[1]) : 0;
    size_t len = number < ROOM ? (size_t)number : ROOM;
#define IS(word) (!strcmp(call, word))
    if (IS("listen")) return listens(fd, number);
    if (IS("accept")) return accepts(fd, number, ms ? ms : ACCEPT_MS);
    if (IS("accept-now")) return accepts_now(fd, number);
    if (IS("listen-again")) return listen(fd, 8);
    if (IS("close")) return close(fd);
    if (IS("dup")) return dup2(fd, number);
    if (IS("write")) return send(fd, words[0], strlen(words[0]), MSG_DONTWAIT);
    if (IS("write-waiting")) return write(fd, words[0], strlen(words[0]));
    if (IS("read")) return said(recv(fd, text, len, MSG_DONTWAIT));
    if (IS("read-waiting")) return waits_and_reads(fd, len, ms ? ms : WAIT_MS, 0);
    if (IS("peek")) return said(recv(fd, text, len, MSG_DONTWAIT | MSG_PEEK));
    if (IS("from")) return receives_from(fd, len, MSG_DONTWAIT);
    if (IS("from-waiting")) return waits_and_reads(fd, len, ms ? ms : WAIT_MS, 1);
    if (IS("from-peek")) return receives_from(fd, len, MSG_DONTWAIT | MSG_PEEK);
    if (IS("shutdown")) return shutdown(fd, number);
    if (IS("poll")) return polls(fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0);
    if (IS("wait")) return polls(fd, POLLIN | POLLRDHUP, number ? number : WAIT_MS);
    if (IS("unread")) return unread(fd);
    if (IS("peer")) return peers_port(fd);
    if (IS("flags")) return flags_of(fd);
    if (IS("nonblocking")) return blocks(fd, number);
    if (IS("option")) return option(fd, words[0], words[1]);
    if (IS("epoll")) return placed(epoll_create1(0), fd);
    if (IS("watch")) return watches(fd, number, words[1]);
    if (IS("collect")) return collects(fd, number ? number : EPOLL_MS);
    return called_with_address(call, fd, words);
}
