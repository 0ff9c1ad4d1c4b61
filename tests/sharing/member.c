/* One process of a family that shares sockets. `member FOLDER NAME` makes the calls that lines in
 * FOLDER/NAME.in ask for, and answers each in FOLDER/NAME.out: the result, the error's name, and
 * what was read. A child is a member with a name of its own. Sockets have fixed numbers. */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

enum { REQUESTS = 200, ANSWERS = 201, MESSAGES = 202, ROOM = 4096, WORDS = 6 };
enum { ACCEPT_MS = 400, WAIT_MS = 150, EPOLL_MS = 30, EVENTS = 8 };

static char *folder, self[256], name[32], text[ROOM + 1];

static void put(int fd, int number) {
    if (fd < 0 || dup2(fd, number) < 0) perror("member"), exit(1);
    close(fd);
    fcntl(number, F_SETFD, FD_CLOEXEC);
}

static socklen_t address_of(const char *member, struct sockaddr_un *addr) {
    addr->sun_family = AF_UNIX;
    int len = snprintf(addr->sun_path + 1, sizeof addr->sun_path - 1, "%s.%s",
                       strrchr(folder, '/') + 1, member);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

static void begin(const char *as) {
    char path[512];
    struct sockaddr_un addr = {0};
    if (as != name) snprintf(name, sizeof name, "%s", as);
    close(REQUESTS), close(ANSWERS), close(MESSAGES);
    snprintf(path, sizeof path, "%s/%s.in", folder, name);
    put(open(path, O_RDWR), REQUESTS);
    snprintf(path, sizeof path, "%s/%s.out", folder, name);
    put(open(path, O_RDWR), ANSWERS);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    bind(fd, (void *)&addr, address_of(name, &addr));
    put(fd, MESSAGES);
}

static void answer(long result) {
    char line[ROOM + 64];
    const char *error = result < 0 ? strerrorname_np(errno) : "-";
    int len = snprintf(line, sizeof line, "%ld %s %s\n", result, error, text);
    if (write(ANSWERS, line, (size_t)len) != len) exit(1);
}

static struct sockaddr_in inet(const char *ip, int port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    addr.sin_addr.s_addr = inet_addr(ip);
    return addr;
}

/* Moves a new descriptor to the number that the family knows it by. */
static int placed(int fd, int number) {
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

static int accepts(int fd, int number) {
    struct pollfd polled = {fd, POLLIN, 0};
    if (poll(&polled, 1, ACCEPT_MS) == 1) return placed(accept(fd, NULL, NULL), number);
    errno = ETIMEDOUT;
    return -1;
}

static int connects(int fd, const char *ip, int port) {
    struct sockaddr_in addr = inet(ip, port);
    placed(socket(AF_INET, SOCK_STREAM, 0), fd);
    return connect(fd, (void *)&addr, sizeof addr);
}

static int spawns(const char *child) {
    char *words[] = {self, folder, (char *)child, NULL};
    pid_t pid;
    errno = posix_spawn(&pid, self, NULL, NULL, words, environ);
    return errno ? -1 : 0;
}

static int forks(const char *child) {
    pid_t pid = fork();
    if (pid == 0) begin(child);
    return pid < 0 ? -1 : pid > 0;
}

static long said(long count) {
    text[count > 0 ? count : 0] = 0;
    return count;
}

/* A read that waits for a while. */
static long waits_and_reads(int fd, size_t len) {
    struct timeval wait = {0, WAIT_MS * 1000}, none = {0, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    long count = said(read(fd, text, len));
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

/* Sends a descriptor to another member, or receives one (`member` is NULL). */
static long passes(int fd, const char *member) {
    struct sockaddr_un addr = {0};
    char byte = 'x', room[CMSG_SPACE(sizeof fd)];
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = sizeof room};
    if (!member) {
        long count = recvmsg(MESSAGES, &message, MSG_DONTWAIT);
        int got;
        if (count <= 0 || !CMSG_FIRSTHDR(&message)) return -1;
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        return placed(got, fd);
    }
    message.msg_name = &addr, message.msg_namelen = address_of(member, &addr);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(MESSAGES, &message, 0);
}

static int watches(int set, int fd, const char *events) {
    struct epoll_event event = {(uint32_t)strtoul(events, NULL, 16), {.fd = fd}};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static int collects(int set) {
    struct epoll_event found[EVENTS];
    int count = epoll_wait(set, found, EVENTS, EPOLL_MS), len = 0;
    for (int fd = 0; fd < REQUESTS; fd++)
        for (int at = 0; at < count; at++)
            if (found[at].data.fd == fd)
                len += sprintf(text + len, "%d:%x,", fd, found[at].events);
    return count;
}

static long called(const char *call, int fd, char **words) {
    int number = words[0] ? atoi(words[0]) : 0;
    size_t len = number < ROOM ? (size_t)number : ROOM;
#define IS(word) (!strcmp(call, word))
    if (IS("listen")) return listens(fd, number);
    if (IS("accept")) return accepts(fd, number);
    if (IS("connect")) return connects(fd, words[0], atoi(words[1]));
    if (IS("close")) return close(fd);
    if (IS("dup")) return dup2(fd, number);
    if (IS("write")) return send(fd, words[0], strlen(words[0]), MSG_DONTWAIT);
    if (IS("write-waiting")) return write(fd, words[0], strlen(words[0]));
    if (IS("read")) return said(recv(fd, text, len, MSG_DONTWAIT));
    if (IS("read-waiting")) return waits_and_reads(fd, len);
    if (IS("peek")) return said(recv(fd, text, len, MSG_DONTWAIT | MSG_PEEK));
    if (IS("shutdown")) return shutdown(fd, number);
    if (IS("poll")) return polls(fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0);
    if (IS("wait")) return polls(fd, POLLIN | POLLRDHUP, WAIT_MS);
    if (IS("unread")) return unread(fd);
    if (IS("peer")) return peers_port(fd);
    if (IS("flags")) return flags_of(fd);
    if (IS("nonblocking")) return blocks(fd, number);
    if (IS("option")) return option(fd, words[0], words[1]);
    if (IS("send")) return passes(fd, words[0]);
    if (IS("receive")) return passes(fd, NULL);
    if (IS("epoll")) return placed(epoll_create1(0), fd);
    if (IS("watch")) return watches(fd, number, words[1]);
    if (IS("collect")) return collects(fd);
    errno = ENOSYS;
    return -1;
}

/* Does what a line asks for. */
static void obey(char *line) {
    char *words[WORDS] = {NULL}, *rest = line;
    for (int at = 0; at < WORDS && (words[at] = strsep(&rest, " ")); at++) {}
    text[0] = 0, errno = 0;
    if (!strcmp(words[0], "exit")) exit(0);
    if (!strcmp(words[0], "exec")) {
        char *arguments[] = {self, folder, name, NULL};
        answer(0);
        execv(self, arguments);
        exit(1);
    }
    if (!strcmp(words[0], "spawn")) return answer(spawns(words[1]));
    if (!strcmp(words[0], "fork")) {
        int result = forks(words[1]);
        /* The child waits for lines of its own. */
        if (result) answer(result < 0 ? -1 : 0);
        return;
    }
    answer(called(words[0], words[1] ? atoi(words[1]) : -1, words + 2));
}

int main(int count, char **arguments) {
    char line[ROOM], byte;
    if (count != 3) return fprintf(stderr, "member FOLDER NAME\n"), 2;
    folder = arguments[1];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    signal(SIGPIPE, SIG_IGN);
    /* Ended by the runner, or with it. */
    begin(arguments[2]);
    for (size_t len = 0;;) {
        if (read(REQUESTS, &byte, 1) != 1) return 1;
        line[len] = byte == '\n' ? 0 : byte;
        if (byte == '\n') obey(line), len = 0;
        else if (++len == sizeof line) return 1;
    }
}
