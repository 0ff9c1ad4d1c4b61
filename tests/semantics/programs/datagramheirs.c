/* Datagram sockets that other processes inherit. Each program that is started is this one again. */
#include "t.h"
#include <spawn.h>

extern char **environ;
static char self[256];

static int bound(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind_to(fd, own_ip(), port)) NOTE("bind: %s", name_of(errno)), exit(1);
    return fd;
}

static unsigned long inode(int fd) {
    struct stat status = {0};
    fstat(fd, &status);
    return status.st_ino;
}

static void ask_echo(int fd, const char *word) {
    struct sockaddr_in to = at(peer_ip(), 7001);
    sendto(fd, word, strlen(word), 0, (void *)&to, sizeof to);
}

/* The answer is a length; who has sent it is looked at. */
static int answer(int fd, int flags) {
    char buf[64];
    struct sockaddr_in from = {0};
    socklen_t len = sizeof from;
    ssize_t n = recvfrom(fd, buf, sizeof buf, flags, (void *)&from, &len);
    if (n < 0) return -errno;
    return from.sin_port == htons(7001) && from.sin_addr.s_addr == at(peer_ip(), 0).sin_addr.s_addr
               ? n
               : -1000;
}

static int again(const char *what, int fd, const char *number) {
    if (!strcmp(what, "nothing")) return 0;
    if (!strcmp(what, "receives")) return answer(0, 0);
    if (!strcmp(what, "speaks")) {
        ask_echo(fd, "from a program");
        return answer(fd, 0);
    }
    if (!strcmp(what, "same")) return inode(fd) == strtoul(number, 0, 10);
    return 99;
}

static int ended(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static pid_t start(const char *what, int fd, int is_input) {
    char text[12], number[24];
    snprintf(text, sizeof text, "%d", fd);
    snprintf(number, sizeof number, "%lu", inode(fd));
    pid_t child = fork();
    if (!child) {
        if (is_input) dup2(fd, 0);
        execl(self, self, what, text, number, NULL), _exit(98);
    }
    return child;
}

/* How many datagrams "number 0" and so on come, each counted once. */
static int heard(int fd, int count) {
    unsigned char seen[64] = {0};
    int good = 0, number;
    while (good < count) {
        char text[32] = "";
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 3000) != 1) break;
        if (recv(fd, text, sizeof text - 1, MSG_DONTWAIT) < 0) continue;
        if (sscanf(text, "number %d", &number) == 1 && number >= 0 && number < count)
            good += !seen[number]++;
    }
    return good;
}

/* Receives `count` datagrams; a child of its own answers each. Returns how many there were. */
static int fork_for_each(int fd, int count) {
    pid_t made[64];
    int forked = 0;
    for (; forked < count; forked++) {
        char text[32];
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 5000) != 1) break;
        ssize_t n = recvfrom(fd, text, sizeof text, 0, (void *)&from, &len);
        if (n < 0) break;
        made[forked] = fork();
        if (!made[forked]) _exit(sendto(fd, text, n, 0, (void *)&from, sizeof from) != n);
    }
    for (int i = 0; i < forked; i++) ended(made[i]);
    return forked;
}

static void serve_the_peer(int port, int is_used) {
    int fd = bound(port);
    if (is_used) ask_echo(fd, "used"), answer(fd, 0);
    int control = ask_peer(port, "asks");
    char said[64] = "";
    NOTE("from the wire, %s: a child for each of %d", is_used ? "used" : "new",
         fork_for_each(fd, 40));
    read_all(control, said, sizeof said - 1);
    NOTE("the peer says: %s", said);
    close(control), close(fd);
}

/* Asks the server in this program; how many answers come. */
static int asks_own(int port, int count) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), good = 0;
    struct timeval limit = {3, 0};
    struct sockaddr_in to = at(own_ip(), port);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (int i = 0; i < count; i++) {
        char text[32], got[32];
        int len = sprintf(text, "number %d", i);
        sendto(fd, text, len, 0, (void *)&to, sizeof to);
        good += recv(fd, got, sizeof got, 0) == len && !memcmp(text, got, len);
    }
    close(fd);
    return good;
}

enum { OWN_COUNT = 10 };
static int own_port;

static void *client(void *argument) {
    return (void *)(intptr_t)asks_own(own_port, OWN_COUNT);
}

static void serve_this_program(int port, int is_thread) {
    int fd = bound(port), good;
    own_port = port;
    pthread_t thread;
    pid_t child = 0;
    if (is_thread) pthread_create(&thread, NULL, client, NULL);
    else if (!(child = fork())) _exit(asks_own(port, OWN_COUNT));
    int forked = fork_for_each(fd, OWN_COUNT);
    void *result;
    if (is_thread) pthread_join(thread, &result), good = (intptr_t)result;
    else good = ended(child);
    NOTE("a client in %s: %d asked, %d answered", is_thread ? "a thread" : "a child", forked, good);
    close(fd);
}

/* The peer says with which type of service and time to live it was asked. */
static void say_marks(const char *what, int fd) {
    char said[64];
    struct sockaddr_in to = at(peer_ip(), 7004);
    sendto(fd, "marks", 5, 0, (void *)&to, sizeof to);
    readable(fd);
    ssize_t len = recv(fd, said, sizeof said, MSG_DONTWAIT);
    NOTE("%s: %.*s", what, (int)(len < 0 ? 0 : len), said);
}

/* A child's options are its parent's too. */
static void options(int fd) {
    pid_t child = fork();
    if (!child) {
        int ttl = 44, tos = 0x28;
        socklen_t len = sizeof ttl;
        SAY(setsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl));
        say_marks("before it was used", fd);
        ttl = 33;
        SAY(setsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl));
        SAY(setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos));
        ttl = 0;
        SAY(getsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, &len));
        NOTE("%d", ttl);
        say_marks("afterwards", fd);
        _exit(0);
    }
    ended(child);
    say_marks("in the parent", fd);
}

int main(int argc, char **argv) {
    if (argc > 3) return again(argv[1], atoi(argv[2]), argv[3]);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    int fd = bound(7330);
    ask_echo(fd, "one");
    readable(fd);
    NOTE("beside a program that does nothing: %d", ended(start("nothing", fd, 0)));
    NOTE("what waited: %d", answer(fd, MSG_DONTWAIT));
    ask_echo(fd, "first");
    readable(fd);
    ask_echo(fd, "and second");
    sleep_ms(50);
    NOTE("a program receives by its standard input: %d", ended(start("receives", fd, 1)));
    NOTE("the rest is the parent's: %d", answer(fd, 0));
    NOTE("a program speaks: %d", ended(start("speaks", fd, 0)));
    pid_t child = fork();
    if (!child) {
        ask_echo(fd, "child");
        pause();
    }
    NOTE("what a sleeping child has asked for: %d", answer(fd, 0));
    int control = ask_peer(7330, "flows"), good = heard(fd, 40);
    close(control);
    NOTE("beside it the parent hears: %d of 40", good);
    kill(child, SIGKILL);
    ended(child);
    child = fork();
    if (!child) {
        char text[24];
        snprintf(text, sizeof text, "grandchild %d", 7);
        pid_t next = fork();
        if (!next) {
            ask_echo(fd, text);
            _exit(answer(fd, 0));
        }
        _exit(ended(next));
    }
    NOTE("children of children: %d", ended(child));
    child = fork();
    if (!child) {
        struct pollfd p = {fd, POLLIN, 0};
        ask_echo(fd, "poll");
        int ready = poll(&p, 1, 2000);
        _exit(ready == 1 ? answer(fd, MSG_DONTWAIT) : 97);
    }
    NOTE("poll in a child: %d", ended(child));
    options(fd);
    NOTE("a socket's inode is the same in a program: %d", ended(start("same", fd, 0)));
    int stream = tcp(7001);
    NOTE("and a connection's: %d", ended(start("same", stream, 0)));
    int connected = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(connected, peer_ip(), 7001));
    SAY(write(connected, "connected", 9));
    readable(connected);
    NOTE("a program receives from a connected one: %d", ended(start("receives", connected, 1)));
    serve_the_peer(7331, 0);
    serve_the_peer(7332, 1);
    serve_this_program(7333, 1);
    serve_this_program(7334, 0);
}
