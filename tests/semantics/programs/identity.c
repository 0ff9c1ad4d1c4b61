/* What names a socket is the same in each process that has it: st_ino of fstat, SO_COOKIE and the
 * link in /proc/self/fd, after fork, and in a program that gets the socket in a message
 * (SCM_RIGHTS). */
#include "t.h"
#include <sys/un.h>

#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif
enum { CHANNEL = 40 };
static char self[256];

struct identity {
    unsigned long inode, cookie, link;
};

static struct identity of(int fd) {
    struct stat status = {0};
    struct identity it = {0};
    socklen_t len = sizeof it.cookie;
    fstat(fd, &status), it.inode = status.st_ino;
    if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &it.cookie, &len)) it.cookie = 0;
    char path[32], link[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, link, sizeof link - 1) > 0) sscanf(link, "socket:[%lu]", &it.link);
    return it;
}

static void pass(int channel, int fd, struct identity *it) {
    char place[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec in = {it, sizeof *it};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = place, .msg_controllen = sizeof place};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    *c = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(channel, &message, 0) != sizeof *it) NOTE("pass: %s", name_of(errno));
}

static int received(int channel, struct identity *it) {
    char place[CMSG_SPACE(sizeof(int))];
    struct iovec in = {it, sizeof *it};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = place, .msg_controllen = sizeof place};
    int fd = -1;
    if (recvmsg(channel, &message, 0) != sizeof *it || !CMSG_FIRSTHDR(&message)) return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* Compares what comes with what it is to be, and sends it back. */
static int receiver(int channel) {
    struct identity told;
    for (int fd; (fd = received(channel, &told)) >= 0; close(fd)) {
        struct identity here = of(fd), again = of(fd);
        NOTE("  received: inode %s, cookie %s, link %s%s",
             here.inode == told.inode ? "equal" : "differs",
             here.cookie == told.cookie ? "equal" : "differs",
             here.link == told.link ? "equal" : "differs",
             memcmp(&here, &again, sizeof here) ? ", and they change" : "");
        pass(channel, fd, &here);
    }
    return 0;
}

static int ended(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void check(const char *what, int fd, int channel) {
    struct identity it = of(fd), told;
    NOTE("%s: inode %s, cookie %s, link %s", what, it.inode ? "known" : "none",
         it.cookie ? "known" : "none", it.link == it.inode ? "equal" : "differs");
    pid_t child = fork();
    if (!child) {
        struct identity here = of(fd);
        _exit((here.inode != it.inode) + 2 * (here.cookie != it.cookie) +
              4 * (here.link != it.link));
    }
    NOTE("  in a child: %d", ended(child));
    pass(channel, fd, &it);
    int back = received(channel, &told);
    struct identity here = of(back);
    NOTE("  sent back: inode %s, cookie %s", here.inode == it.inode ? "equal" : "differs",
         here.cookie == it.cookie ? "equal" : "differs");
    close(back);
}

static void all(int channel, int port) {
    int stream = tcp(7001), server = listener(port), control = ask_peer(port, "silent");
    int got = accept(server, 0, 0), datagrams[3], one = 1, fresh = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 3; i++) datagrams[i] = socket(AF_INET, SOCK_DGRAM, 0);
    check("a connection", stream, channel);
    check("an accepted one", got, channel);
    check("a listener", server, channel);
    bind_to(datagrams[0], own_ip(), port + 1), bind_to(datagrams[1], "0.0.0.0", port + 2);
    check("datagrams of an address", datagrams[0], channel);
    check("datagrams of all addresses", datagrams[1], channel);
    bind_to(datagrams[2], own_ip(), port + 6), connect_to(datagrams[2], peer_ip(), 7001);
    check("a connected datagram socket", datagrams[2], channel);
    int unbound[] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET6, SOCK_DGRAM, 0)};
    check("an unbound one", unbound[0], channel);
    check("unbound datagrams of IPv6", unbound[1], channel);
    bind_to(fresh, own_ip(), port + 3);
    check("bound", fresh, channel);
    int loopback = socket(AF_INET, SOCK_STREAM, 0), everywhere = socket(AF_INET, SOCK_STREAM, 0);
    bind_to(loopback, "127.0.0.1", port + 4), listen(loopback, 5);
    check("a listener of the loopback", loopback, channel);
    bind_to(everywhere, "0.0.0.0", port + 5), listen(everywhere, 5);
    check("a listener of all addresses", everywhere, channel);
    setsockopt(datagrams[1], IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
    check("datagrams of all addresses again", datagrams[1], channel);
    close(control);
}

int main(int argc, char **argv) {
    if (argc > 1) return receiver(CHANNEL);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    for (int is_program = 0; is_program < 2; is_program++) {
        int pair[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        NOTE("%s", is_program ? "to a program" : "to a child");
        pid_t child = fork();
        if (!child) {
            close(pair[0]);
            if (!is_program) _exit(receiver(pair[1]));
            dup2(pair[1], CHANNEL), close(pair[1]);
            execl(self, self, "receives", NULL), _exit(98);
        }
        close(pair[1]);
        all(pair[0], 7360 + 10 * is_program);
        close(pair[0]);
        NOTE("the receiver: %d", ended(child));
    }
}
