/* Datagram sockets that are connected, with and without a bind before, and then come to another
 * program: in a message, by exec, by posix_spawn, or to a child. Each program that is started is
 * this one again. */
#include "t.h"
#include <spawn.h>

extern char **environ;

static struct sockaddr_in6 at6(const char *ip, int port) {
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, ip, &addr.sin6_addr);
    return addr;
}

static int asked(int fd, const char *word) {
    char got[64];
    SAY(send(fd, word, strlen(word), 0));
    struct pollfd watched = {fd, POLLIN, 0};
    if (poll(&watched, 1, 3000) != 1) return NOTE("no answer"), -1;
    return SAY(recv(fd, got, sizeof got, MSG_DONTWAIT));
}

/* Connects a socket to the peer; `port`: it is bound before, -1: connect binds it. */
static void connected(int fd, int family, int port) {
    struct sockaddr_in to = at(peer_ip(), 7001), own = at(own_ip(), port);
    struct sockaddr_in6 to6 = at6(getenv("PEER_IP6"), 7011), own6 = at6(getenv("OWN_IP6"), port);
    int is_v4 = family == AF_INET;
    socklen_t len = is_v4 ? sizeof to : sizeof to6;
    if (port >= 0) SAY(bind(fd, is_v4 ? (void *)&own : (void *)&own6, len));
    SAY(connect(fd, is_v4 ? (void *)&to : (void *)&to6, len));
}

static int own_port(int fd) {
    struct sockaddr_in6 addr = {0};
    socklen_t len = sizeof addr;
    getsockname(fd, (void *)&addr, &len);
    return ntohs(addr.sin6_port);
}

/* The heir: it has the same ends, and is heard and answered. */
static void use(int fd, int port) {
    struct sockaddr_in6 addr = {0};
    socklen_t len = sizeof addr;
    SAY(getpeername(fd, (void *)&addr, &len));
    NOTE("its port is %s", own_port(fd) == port ? "the same" : "another");
    asked(fd, "from the heir");
    asked(fd, "and again");
}

static void words(const char *self, const char *how, int fd, int port, char **list, char *room) {
    sprintf(room, "%d", fd);
    sprintf(room + 16, "%d", port);
    list[0] = (char *)self, list[1] = (char *)how, list[2] = room, list[3] = room + 16, list[4] = 0;
}

/* By the way `how`; this program closes it before the heir uses it. */
static void pass(const char *self, char how, int family, int port, int is_used) {
    NOTE("# %c %s %s %s", how, family == AF_INET ? "IPv4" : "IPv6", port < 0 ? "unbound" : "bound",
         is_used ? "used" : "new");
    pid_t child;
    /* The program that becomes another one has made the socket itself. */
    int is_sent = how == 'M';
    if (is_sent) how = 'm';
    if (how == 'x' && (child = fork())) {
        waitpid(child, 0, 0);
        return;
    }
    int fd = socket(family, SOCK_DGRAM, 0), ways[2];
    if (is_sent) {
        /* Another program may have had it before it was connected. */
        socketpair(AF_UNIX, SOCK_STREAM, 0, ways);
        send_fd(ways[0], fd);
        close(receive_fd(ways[1])), close(ways[0]), close(ways[1]);
    }
    connected(fd, family, port);
    if (is_used) asked(fd, "before");
    int own = own_port(fd);
    char *list[5], room[32];
    if (how == 'x') {
        words(self, "exec", fd, own, list, room);
        execv("/proc/self/exe", list), _exit(1);
    }
    socketpair(AF_UNIX, SOCK_STREAM, 0, ways);
    fcntl(ways[0], F_SETFD, FD_CLOEXEC);
    if (how == 'm' || how == 's') {
        if (how == 'm') fcntl(fd, F_SETFD, FD_CLOEXEC);
        words(self, how == 'm' ? "message" : "spawn", how == 'm' ? ways[1] : fd, own, list, room);
        /* Nothing is said of it: the heir speaks meanwhile. */
        if (posix_spawn(&child, "/proc/self/exe", 0, 0, list, environ)) NOTE("not spawned");
        if (how == 'm') send_fd(ways[0], fd);
    } else if (!(child = fork())) {
        if (how == 'f') use(fd, own), _exit(0);
        words(self, "exec", fd, own, list, room);
        execv("/proc/self/exe", list), _exit(1);
    }
    if (how == 'm') {
        char byte;
        close(ways[1]);
        read(ways[0], &byte, 1);
        close(fd);
        write(ways[0], "g", 1);
    }
    waitpid(child, 0, 0);
    close(ways[0]), close(fd);
}

int main(int argc, char **argv) {
    if (argc > 3) {
        int fd = atoi(argv[2]);
        char byte;
        if (!strcmp(argv[1], "message")) {
            int way = fd;
            fd = receive_fd(way);
            write(way, "t", 1);
            read(way, &byte, 1);
        }
        use(fd, atoi(argv[3]));
        return 0;
    }
    int bound = 7371;
    for (const char *how = "mefsxM"; *how; how++)
        for (int family = 0; family < 2; family++)
            for (int kind = 0; kind < 4; kind++)
                pass(argv[0], *how, family ? AF_INET6 : AF_INET, kind & 2 ? bound++ : -1,
                     kind & 1);
    return 0;
}
