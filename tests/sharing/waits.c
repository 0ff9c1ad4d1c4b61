/* Calls that a member begins and that wait, and calls beside them. */

#define _GNU_SOURCE

#include "member.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 8, IDLE_MS = 200, FILL_MAX = 1 << 24 };

/* Writes so much that it waits for the peer. */
static long fills(int fd, size_t count) {
    static const char bytes[FILL_MAX];
    long wrote = write(fd, bytes, count < FILL_MAX ? count : FILL_MAX);
    /* How much there is room for differs. */
    if (wrote > 0) strcpy(text, (size_t)wrote == count ? "all" : "some");
    return wrote > 0 ? 0 : wrote;
}

/* Reads until nothing more comes. */
static long drains(int fd) {
    static char bytes[1 << 16];
    struct pollfd polled = {fd, POLLIN, 0};
    long count = 0, total = 0;
    while (poll(&polled, 1, IDLE_MS) == 1 && (count = read(fd, bytes, sizeof bytes)) > 0)
        total += count;
    sprintf(text, "%s", total ? "some" : "none");
    return polled.revents && count <= 0 ? count : 1;
}

static long selects(int fd, const char *kind) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    fd_set *reads = *kind == 'r' ? &set : NULL, *writes = *kind == 'w' ? &set : NULL;
    return select(fd + 1, reads, writes, *kind == 'x' ? &set : NULL, NULL);
}

static long polls(int fd, const char *events) {
    struct pollfd polled = {fd, (short)strtoul(events, NULL, 16), 0};
    int count = poll(&polled, 1, -1);
    if (count > 0) sprintf(text, "%x", polled.revents);
    return count;
}

static long collects(int set) {
    struct epoll_event found[EVENTS];
    int count = epoll_wait(set, found, EVENTS, -1), len = 0;
    for (int fd = 0; fd < REQUESTS; fd++)
        for (int at = 0; at < count; at++)
            if (found[at].data.fd == fd)
                len += sprintf(text + len, "%d:%x,", fd, found[at].events);
    return count;
}

static int changes(int set, int how, int fd, const char *events) {
    struct epoll_event event = {(uint32_t)strtoul(events ? events : "0", NULL, 16), {.fd = fd}};
    return epoll_ctl(set, how, fd, &event);
}

static int resets(int fd) {
    struct linger at_once = {1, 0};
    return setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) ?: close(fd);
}

static int limits(int fd, int option, int ms) {
    struct timeval limit = {ms / 1000, ms % 1000 * 1000};
    return setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit);
}

long waits(const char *call, int fd, char **words) {
    int number = words[0] ? atoi(words[0]) : 0;
    size_t len = number < ROOM ? (size_t)number : ROOM;
#define IS(word) (!strcmp(call, word))
    if (IS("get")) return said(read(fd, text, len));
    if (IS("get-all")) return said(recv(fd, text, len, MSG_WAITALL));
    if (IS("look")) return said(recv(fd, text, len, MSG_PEEK));
    if (IS("fill")) return fills(fd, (size_t)number);
    if (IS("drain")) return drains(fd);
    if (IS("take")) return placed(accept(fd, NULL, NULL), number);
    if (IS("await")) return polls(fd, words[0]);
    if (IS("select")) return selects(fd, words[0]);
    if (IS("gather")) return collects(fd);
    if (IS("unwatch")) return changes(fd, EPOLL_CTL_DEL, number, NULL);
    if (IS("rewatch")) return changes(fd, EPOLL_CTL_MOD, number, words[1]);
    if (IS("socket")) return placed(socket(AF_INET, SOCK_STREAM, 0), fd);
    if (IS("reset")) return resets(fd);
    if (IS("limit")) return limits(fd, SO_RCVTIMEO, number);
    if (IS("limit-writes")) return limits(fd, SO_SNDTIMEO, number);
    errno = ENOSYS;
    return -1;
}
