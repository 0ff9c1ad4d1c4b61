/* Options that the kernel's part of a socket does not have: groups, a filter, SO_PEEK_OFF, the
 * interface of groups and others, in programs that get the socket by exec, posix_spawn and in a
 * message (SCM_RIGHTS). And sockets that are not bound yet. */
#include "t.h"
#include <linux/filter.h>
#include <spawn.h>

#define GROUP "239.9.9.21"
enum { CHANNEL = 50, HEIR = 51 };
static char self[256];

static int made(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, off = 1, stamps = 1 << 4;
    struct ip_mreq join;
    join.imr_multiaddr.s_addr = inet_addr(GROUP), join.imr_interface.s_addr = inet_addr(own_ip());
    /* Drops what begins with an x, behind the header of UDP. */
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'x', 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, -1)};
    struct sock_fprog filter = {4, code};
    struct timeval wait = {0, 400000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    bind_to(fd, "0.0.0.0", port);
    SAY(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
    SAY(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &join.imr_interface, 4));
    SAY(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &(int){0}, 4));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
    SAY(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    SAY(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps));
    SAY(setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof on));
    return fd;
}

static void say(int fd) {
    struct in_addr leaves = {0};
    struct sock_filter code[16];
    socklen_t len = sizeof leaves;
    getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &leaves, &len);
    NOTE("leaves by %s", leaves.s_addr == inet_addr(own_ip()) ? "our address" : "another");
    say_option("IP_MULTICAST_ALL", fd, IPPROTO_IP, IP_MULTICAST_ALL);
    say_option("SO_PEEK_OFF", fd, SOL_SOCKET, SO_PEEK_OFF);
    say_option("SO_ZEROCOPY", fd, SOL_SOCKET, SO_ZEROCOPY);
    say_option("IP_TRANSPARENT", fd, IPPROTO_IP, IP_TRANSPARENT);
    say_option("SO_TIMESTAMPING", fd, SOL_SOCKET, SO_TIMESTAMPING);
    say_option("IP_FREEBIND", fd, IPPROTO_IP, IP_FREEBIND);
    len = 16;
    long count = getsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, code, &len);
    NOTE("a filter: %ld, %u", count, len);
}

static void heir(int fd, int port) {
    char got[16] = "";
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    struct in_addr leaves = {inet_addr(own_ip())};
    struct sockaddr_in group = at(GROUP, port), plain = at(own_ip(), port);
    say(fd);
    bind_to(other, own_ip(), port + 40);
    setsockopt(other, IPPROTO_IP, IP_MULTICAST_IF, &leaves, sizeof leaves);
    SAY(recv(fd, got, sizeof got, MSG_DONTWAIT));
    sendto(other, "xa", 2, 0, (void *)&plain, sizeof plain);
    sendto(other, "bc", 2, 0, (void *)&plain, sizeof plain);
    SAY(recv(fd, got, sizeof got, MSG_PEEK));
    NOTE("from the second byte on: %c", got[0]);
    SAY(recv(fd, got, sizeof got, 0));
    sendto(other, "def", 3, 0, (void *)&group, sizeof group);
    SAY(recv(fd, got, sizeof got, 0));
    SAY(recv(fd, got, sizeof got, 0));
    close(other);
}

/* Sockets that have been made and nothing else. */
static void unbound(int stream, int datagrams) {
    char got[16] = "";
    say_option("SO_ACCEPTCONN", stream, SOL_SOCKET, SO_ACCEPTCONN);
    SAY(connect_to(stream, peer_ip(), 7001));
    SAY(write(stream, "hello", 5));
    SAY(read_all(stream, got, 5));
    SAY(connect_to(datagrams, peer_ip(), 7001));
    SAY(write(datagrams, "hi", 2));
    SAY(read(datagrams, got, sizeof got));
    say_option("IP_TTL", stream, IPPROTO_IP, IP_TTL);
    say_option("SO_ERROR", stream, SOL_SOCKET, SO_ERROR);
}

/* One that turns out to be the kernel's. */
static void of_loopback(int fd) {
    socklen_t len = 16;
    struct sock_filter code[16];
    SAY(connect_to(fd, "127.0.0.1", 1));
    NOTE("a filter: %d, %u", getsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, code, &len), len);
    say_option("IP_FREEBIND", fd, IPPROTO_IP, IP_FREEBIND);
}

static void take(int channel, int port) {
    int fd = receive_fd(channel), stream = receive_fd(channel), datagrams = receive_fd(channel);
    int third = receive_fd(channel);
    heir(fd, port), unbound(stream, datagrams), of_loopback(third);
}

static void end(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    NOTE("ended: %d", status);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        if (!strcmp(argv[1], "takes")) take(CHANNEL, atoi(argv[2]));
        else heir(HEIR, atoi(argv[2])), unbound(HEIR + 1, HEIR + 2), of_loopback(HEIR + 3);
        return 0;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    for (int way = 0; way < 3; way++) {
        char port[8];
        int pair[2], ttl = 44, fds[4];
        snprintf(port, sizeof port, "%d", 8740 + way);
        fds[0] = made(8740 + way), fds[1] = socket(AF_INET, SOCK_STREAM, 0);
        fds[2] = socket(AF_INET, SOCK_DGRAM, 0), fds[3] = socket(AF_INET, SOCK_DGRAM, 0);
        setsockopt(fds[1], IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
        NOTE("%s", way == 0 ? "exec" : way == 1 ? "posix_spawn" : "a message");
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        pid_t child;
        if (way == 1) {
            char *words[] = {self, "has", port, 0};
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            for (int i = 0; i < 4; i++)
                posix_spawn_file_actions_adddup2(&actions, fds[i], HEIR + i);
            extern char **environ;
            posix_spawn(&child, self, &actions, 0, words, environ);
        } else if (!(child = fork())) {
            for (int i = 0; i < 4 && way == 0; i++) dup2(fds[i], HEIR + i);
            for (int i = 0; i < 4; i++) close(fds[i]);
            dup2(pair[1], CHANNEL), close(pair[0]), close(pair[1]);
            execl(self, self, way == 0 ? "has" : "takes", port, NULL), _exit(98);
        }
        if (way == 2)
            for (int i = 0; i < 4; i++) send_fd(pair[0], fds[i]);
        for (int i = 0; i < 4; i++) close(fds[i]);
        close(pair[0]), close(pair[1]);
        end(child);
    }
}
