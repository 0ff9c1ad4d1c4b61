/* A UDP socket that is passed on by a program which has it from another and never asks for its
 * options; one that its first program waits on before its receiver has looked; and the end of a
 * filter that was never set. */
#include "t.h"
#include <linux/filter.h>
#include <spawn.h>

#define GROUP "239.9.9.41"
enum { SOCKET = 50, CHANNEL = 51, READY = 52 };
static char self[256];

/* Drops what begins with an x, behind the header of UDP. */
static struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'x', 0, 1),
    BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, -1)};

static int made(int port, int filters) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, off = 1;
    struct ip_mreq join;
    join.imr_multiaddr.s_addr = inet_addr(GROUP), join.imr_interface.s_addr = inet_addr(own_ip());
    struct sock_fprog filter = {4, code};
    struct timeval wait = {0, 400000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    bind_to(fd, "0.0.0.0", port);
    setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join);
    setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &join.imr_interface, 4);
    setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &(int){0}, 4);
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof off);
    setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
    if (filters) setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
    return fd;
}

static void say(int fd) {
    struct in_addr leaves = {0};
    struct sock_filter room[16];
    socklen_t len = sizeof leaves;
    getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &leaves, &len);
    NOTE("leaves by %s", leaves.s_addr == inet_addr(own_ip()) ? "our address" : "another");
    say_option("IP_MULTICAST_ALL", fd, IPPROTO_IP, IP_MULTICAST_ALL);
    say_option("IP_PKTINFO", fd, IPPROTO_IP, IP_PKTINFO);
    say_option("SO_PEEK_OFF", fd, SOL_SOCKET, SO_PEEK_OFF);
    say_option("SO_ZEROCOPY", fd, SOL_SOCKET, SO_ZEROCOPY);
    say_option("IP_FREEBIND", fd, IPPROTO_IP, IP_FREEBIND);
    len = 16;
    long count = getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, room, &len);
    NOTE("a filter: %ld, %u", count, len);
}

/* Two datagrams to the address, one to the group, from a socket of this program's. */
static void hear(int fd, int port) {
    char got[16] = "";
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    struct in_addr leaves = {inet_addr(own_ip())};
    struct sockaddr_in group = at(GROUP, port), plain = at(own_ip(), port);
    bind_to(other, own_ip(), port + 40);
    setsockopt(other, IPPROTO_IP, IP_MULTICAST_IF, &leaves, sizeof leaves);
    sendto(other, "xa", 2, 0, (void *)&plain, sizeof plain);
    sendto(other, "bc", 2, 0, (void *)&plain, sizeof plain);
    SAY(recv(fd, got, sizeof got, MSG_PEEK));
    say_option("SO_PEEK_OFF", fd, SOL_SOCKET, SO_PEEK_OFF);
    SAY(recv(fd, got, sizeof got, 0));
    NOTE("it begins with %c", got[0]);
    /* The second has come by then, whichever stack it goes through. */
    sleep_ms(50);
    while (recv(fd, got, sizeof got, MSG_DONTWAIT) > 0) {}
    sendto(other, "def", 3, 0, (void *)&group, sizeof group);
    SAY(recv(fd, got, sizeof got, 0));
    SAY(recv(fd, got, sizeof got, MSG_DONTWAIT));
    close(other);
}

static void end(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    NOTE("ended: %d", status);
}

static pid_t start(const char *what, int port) {
    char text[8];
    char *words[] = {self, (char *)what, text, 0};
    extern char **environ;
    pid_t child = -1;
    snprintf(text, sizeof text, "%d", port);
    posix_spawn(&child, self, 0, 0, words, environ);
    return child;
}

/* Passes on what came by exec, without a look at it. */
static void pass_on(int port) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fcntl(SOCKET, F_SETFD, FD_CLOEXEC);
    dup2(pair[1], CHANNEL), close(pair[1]);
    pid_t child = start("takes", port);
    close(CHANNEL);
    send_fd(pair[0], SOCKET);
    close(SOCKET);
    end(child);
}

static void wait_for_owner(void) {
    char byte;
    read(READY, &byte, 1);
    sleep_ms(50);
}

static int run(char **argv) {
    int port = atoi(argv[2]);
    if (!strcmp(argv[1], "passes")) return pass_on(port), 0;
    if (!strcmp(argv[1], "again")) return execl(self, self, "says", argv[2], NULL);
    if (!strcmp(argv[1], "takes")) {
        int fd = receive_fd(CHANNEL);
        say(fd);
        if (port & 1) wait_for_owner(), hear(fd, port);
        return 0;
    }
    if (port & 1) wait_for_owner();
    return say(SOCKET), hear(SOCKET, port), 0;
}

/* `is_served`: this program has received from it before. */
static void passes(const char *way, const char *what, int port, int is_served) {
    char byte;
    int fd = made(port, 1), pair[2];
    NOTE("%s, %s%s", way, what, is_served ? ", served" : "");
    if (is_served) SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    dup2(pair[1], READY);
    pid_t child = -1;
    if (!strcmp(way, "exec")) {
        child = fork();
        if (!child) {
            char text[8];
            snprintf(text, sizeof text, "%d", port);
            dup2(fd, SOCKET), close(fd), close(pair[0]), close(pair[1]);
            execl(self, self, what, text, NULL), _exit(98);
        }
    } else {
        fcntl(fd, F_SETFD, FD_CLOEXEC), fcntl(pair[0], F_SETFD, FD_CLOEXEC);
        fcntl(pair[1], F_SETFD, FD_CLOEXEC);
        dup2(fd, SOCKET);
        child = start(what, port);
        close(SOCKET);
    }
    close(READY), close(pair[1]);
    if (port & 1) close(fd), write(pair[0], "g", 1);
    end(child);
    close(pair[0]);
    /* The filter is still there. */
    if (!(port & 1)) hear(fd, port), close(fd);
}

/* This program waits on it before its receiver looks. */
static void waits(const char *way, int port) {
    int fd = made(port, 0), pair[2];
    struct timeval brief = {0, 20000};
    char byte;
    NOTE("%s, waited on", way);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fcntl(pair[0], F_SETFD, FD_CLOEXEC);
    int is_message = !strcmp(way, "message");
    dup2(pair[1], is_message ? CHANNEL : READY), close(pair[1]);
    if (!is_message) dup2(fd, SOCKET);
    pid_t child;
    if (is_message) {
        send_fd(pair[0], fd);
        SAY(recv(fd, &byte, 1, 0));
        dup2(pair[0], READY);
        write(CHANNEL, "g", 1);
        child = start("takes", port);
        close(CHANNEL), close(READY);
    } else {
        child = start("waits", port);
        close(SOCKET), close(READY);
        SAY(recv(fd, &byte, 1, 0));
        write(pair[0], "g", 1);
    }
    close(fd);
    end(child);
    close(pair[0]);
}

static void detach(int port, int sends, int waits) {
    int fd = made(port, 0), pair[2], on = 1;
    char byte;
    struct sock_fprog filter = {4, code};
    NOTE("%s, %s", sends ? "sent" : "kept", waits ? "waited on" : "not waited on");
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (sends) send_fd(pair[0], fd);
    if (waits) recv(fd, &byte, 1, MSG_DONTWAIT);
    SAY(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
    if (sends) {
        int got = receive_fd(pair[1]);
        say(got), close(got);
    }
    SAY(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on));
    SAY(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on));
    SAY(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on));
    SAY(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on));
    close(fd), close(pair[0]), close(pair[1]);
}

int main(int argc, char **argv) {
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    if (argc > 2) return run(argv);
    /* From odd ports on the first program has closed it before the last one receives. */
    const char *ways[] = {"exec", "posix_spawn"}, *whats[] = {"passes", "again", "says"};
    int port = 8770;
    for (int way = 0; way < 2; way++)
        for (int what = 0; what < 3; what++)
            for (int closes = 0; closes < 2; closes++, port++)
                passes(ways[way], whats[what], port, 1);
    passes("exec", "passes", port++, 0);
    passes("exec", "again", port++, 0);
    port++;
    waits("posix_spawn", port), waits("message", port + 2), port += 3;
    for (int way = 0; way < 4; way++) detach(port + way, way & 1, way & 2);
}
