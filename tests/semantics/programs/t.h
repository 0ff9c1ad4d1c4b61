/* What the test programs share: each prints a transcript of calls and answers, in which
 * nothing depends on the machine or on chance. Addresses come from the environment. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *name_of(int error) {
    const char *name = strerrorname_np(error);
    return name ? name : "?";
}

/* The answer of a call: a number, or the error's name. */
#define SAY(call)                                                                  \
    ({                                                                             \
        errno = 0;                                                                 \
        long r_ = (call);                                                          \
        if (r_ < 0) printf("%s = %s\n", #call, name_of(errno));                    \
        else printf("%s = %ld\n", #call, r_);                                      \
        fflush(stdout);                                                            \
        r_;                                                                        \
    })

/* As SAY where the number is a descriptor. */
#define OPEN(call)                                                                 \
    ({                                                                             \
        errno = 0;                                                                 \
        long r_ = (call);                                                          \
        printf("%s = %s\n", #call, r_ < 0 ? name_of(errno) : "fd");                \
        fflush(stdout);                                                            \
        (int)r_;                                                                   \
    })

#define NOTE(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))

static struct sockaddr_in at(const char *ip, int port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &addr.sin_addr);
    return addr;
}

static const char *peer_ip(void) { return getenv("PEER_IP"); }
static const char *own_ip(void) { return getenv("OWN_IP"); }

static inline int bind_to(int fd, const char *ip, int port) {
    struct sockaddr_in addr = at(ip, port);
    return bind(fd, (void *)&addr, sizeof addr);
}

static inline int connect_to(int fd, const char *ip, int port) {
    struct sockaddr_in addr = at(ip, port);
    return connect(fd, (void *)&addr, sizeof addr);
}

/* A blocking TCP connection to a service of the peer's. */
static inline int tcp(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect_to(fd, peer_ip(), port)) NOTE("connect to %d: %s", port, name_of(errno)), exit(1);
    return fd;
}

/* A listener on our own address; the port is always given. */
static inline int listener(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind_to(fd, own_ip(), port) || listen(fd, 16))
        NOTE("listen on %d: %s", port, name_of(errno)), exit(1);
    return fd;
}

/* Asks the peer to connect back; the control connection is the answer. */
static inline int ask_peer(int port, const char *what) {
    int fd = tcp(7010);
    char line[64];
    int len = snprintf(line, sizeof line, "%d %s\n", port, what);
    if (write(fd, line, len) != len) NOTE("ask: %s", name_of(errno));
    return fd;
}

static inline void nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

static inline long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

/* Whether about `want` ms have gone by since `since`. */
static inline const char *took(long since, long want) {
    long ms = now_ms() - since;
    static char text[32];
    if (ms >= want - 2 && ms <= want + 150) return "in time";
    snprintf(text, sizeof text, "%ld ms instead of %ld", ms, want);
    return text;
}

/* Reads until `len` bytes, EOF or an error; how many. */
static inline long read_all(int fd, void *buf, size_t len) {
    size_t done = 0;
    while (done < len) {
        ssize_t n = read(fd, (char *)buf + done, len - done);
        if (n <= 0) break;
        done += n;
    }
    return done;
}

/* Waits until `fd` is readable (or a second is over). */
static inline void readable(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    poll(&p, 1, 1000);
}

/* Waits until the kernel stamps what arrives, and keeps it at that: it begins some time after the
 * first socket on the machine has asked, and what arrives before then has no SCM_TIMESTAMPING. */
static inline void receive_stamps_begin(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    int flags = (1 << 3) | (1 << 4); /* SOF_TIMESTAMPING_RX_SOFTWARE, SOF_TIMESTAMPING_SOFTWARE */
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    bind_to(fd, "127.0.0.1", 0), getsockname(fd, (void *)&own, &len);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags);
    for (int i = 0; i < 200; i++) {
        char byte, place[256];
        struct iovec in = {&byte, 1};
        struct msghdr message = {
            .msg_iov = &in, .msg_iovlen = 1, .msg_control = place, .msg_controllen = sizeof place};
        sendto(fd, "x", 1, 0, (void *)&own, len), readable(fd);
        if (recvmsg(fd, &message, MSG_DONTWAIT) == 1 && message.msg_controllen) return;
        sleep_ms(5);
    }
}

static inline void say_poll(const char *what, short events) {
    printf("%s:", what);
    if (events & POLLIN) printf(" IN");
    if (events & POLLOUT) printf(" OUT");
    if (events & POLLPRI) printf(" PRI");
    if (events & POLLRDHUP) printf(" RDHUP");
    if (events & POLLERR) printf(" ERR");
    if (events & POLLHUP) printf(" HUP");
    if (events & POLLNVAL) printf(" NVAL");
    NOTE("%s", events ? "" : " nothing");
}

static inline void say_option(const char *what, int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    long result = getsockopt(fd, level, name, &value, &len);
    NOTE("%s: %s %d", what, result ? name_of(errno) : "is", value);
}

static inline int so_error(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    return error;
}

/* Sends a descriptor over a unix socket. */
static inline void send_fd(int way, int fd) {
    char what = 'd', room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&what, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    SAY(sendmsg(way, &message, 0));
}

/* The descriptor that comes; -1: none. */
static inline int receive_fd(int way) {
    char what, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&what, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    recvmsg(way, &message, 0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head) memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}
