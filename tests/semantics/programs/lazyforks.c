/* What a program makes when it is first needed, after a fork at any moment: each case runs in a
 * program of its own, which has called nothing before. */
#include "t.h"
#include <netdb.h>
#include <sys/prctl.h>

enum { SECONDS = 10, ROUNDS = 20 };
static char self[256];

static int ask(int fd) {
    char text[8] = "";
    if (send(fd, "word", 4, 0) != 4) return 10;
    readable(fd);
    return recv(fd, text, sizeof text, MSG_DONTWAIT) == 4 && !memcmp(text, "word", 4) ? 0 : 11;
}

static int connected(int type) {
    int fd = socket(AF_INET, type, 0);
    return connect_to(fd, peer_ip(), 7001) ? -1 : fd;
}

static int by_datagrams(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind_to(fd, own_ip(), port)) return 12;
    struct sockaddr_in to = at(peer_ip(), 7001);
    char text[8];
    sendto(fd, "word", 4, 0, (void *)&to, sizeof to);
    readable(fd);
    int is_right = recv(fd, text, sizeof text, MSG_DONTWAIT) == 4;
    close(fd);
    return is_right ? 0 : 13;
}

static int by_epoll(int port) {
    int set = epoll_create1(EPOLL_CLOEXEC), fd = connected(SOCK_STREAM);
    struct epoll_event event = {EPOLLIN, {.u32 = port}};
    if (fd < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) return 14;
    if (send(fd, "word", 4, 0) != 4 || epoll_wait(set, &event, 1, 2000) != 1) return 15;
    char text[8];
    int is_right = event.data.u32 == port && read(fd, text, sizeof text) == 4;
    close(fd), close(set);
    return is_right ? 0 : 16;
}

static int by_name(int port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET}, *found;
    if (getaddrinfo(peer_ip(), "7001", &hints, &found)) return 17;
    int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    if (connect(fd, found->ai_addr, found->ai_addrlen)) return 18;
    freeaddrinfo(found);
    int result = ask(fd);
    close(fd);
    return result;
}

static int by_accepting(int port) {
    int server = listener(port), control = ask_peer(port, "hello");
    struct pollfd p = {server, POLLIN, 0};
    char text[8];
    if (poll(&p, 1, 3000) != 1) return 19;
    int fd = accept(server, NULL, NULL);
    int is_right = read_all(fd, text, 6) == 6 && !memcmp(text, "hello\n", 6);
    close(fd), close(control), close(server);
    return is_right ? 0 : 20;
}

static int by_connecting(int port) {
    int fd = connected(SOCK_STREAM);
    if (fd < 0) return 21;
    int result = ask(fd);
    close(fd);
    return result;
}

static const struct {
    const char *name;
    int (*call)(int port);
} ways[] = {{"datagrams", by_datagrams}, {"epoll", by_epoll},      {"getaddrinfo", by_name},
            {"accept", by_accepting},    {"connect", by_connecting}};
enum { WAYS = sizeof ways / sizeof *ways };

/* The child's result; -SIGALRM if it hangs. */
static int ended(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static pid_t forked(int (*call)(int), int port) {
    pid_t child = fork();
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL), alarm(SECONDS);
    _exit(call(port));
}

/* The fork is the first thing; then child and parent, at once. */
static void fork_first(int way) {
    pid_t child = forked(ways[way].call, 7350);
    int parents = ways[way].call(7351);
    NOTE("%s: child %d, parent %d", ways[way].name, ended(child), parents);
}

/* A child of a child, whose parents have called nothing. */
static void fork_twice(int way) {
    pid_t child = fork();
    if (!child) alarm(SECONDS), _exit(ended(forked(ways[way].call, 7352)));
    NOTE("%s: grandchild %d", ways[way].name, ended(child));
}

static pthread_barrier_t begin;
static int thread_way, delay_us;

static void *first_call(void *unused) {
    pthread_barrier_wait(&begin);
    return (void *)(intptr_t)ways[thread_way].call(7353);
}

/* A thread makes the program's first call while another one forks. */
static int fork_among_first_calls(int way, int round) {
    pthread_t thread;
    thread_way = way, delay_us = round * 37;
    pthread_barrier_init(&begin, NULL, 2);
    pthread_create(&thread, NULL, first_call, NULL);
    pthread_barrier_wait(&begin);
    /* From before the first call to within the last ones. */
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - end.tv_sec) * 1000000 + (now.tv_nsec - end.tv_nsec) / 1000 < delay_us);
    pid_t child = forked(ways[way].call, 7354);
    void *result;
    int childs = ended(child);
    pthread_join(thread, &result);
    return childs ? childs : (int)(intptr_t)result;
}

static int in_a_program(const char *what, int way, int round) {
    char texts[2][12];
    snprintf(texts[0], 12, "%d", way), snprintf(texts[1], 12, "%d", round);
    pid_t child = fork();
    if (!child) execl(self, self, what, texts[0], texts[1], NULL), _exit(98);
    return ended(child);
}

int main(int argc, char **argv) {
    if (argc > 3) {
        alarm(2 * SECONDS);
        int way = atoi(argv[2]);
        if (!strcmp(argv[1], "among")) return fork_among_first_calls(way, atoi(argv[3]));
        if (!strcmp(argv[1], "first")) fork_first(way);
        else fork_twice(way);
        return 0;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    for (int way = 0; way < WAYS; way++) {
        int failed = 0, last = 0;
        if (in_a_program("first", way, 0) || in_a_program("twice", way, 0)) NOTE("it ended");
        for (int round = 0; round < ROUNDS; round++) {
            int result = in_a_program("among", way, round);
            if (result) failed++, last = result;
        }
        NOTE("%s: %d of %d failed, the last by %d", ways[way].name, failed, ROUNDS, last);
    }
}
