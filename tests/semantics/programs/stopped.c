/* A process that is stopped and continued in the midst of a wait (signal(7): some calls end with
 * EINTR although no handler runs), and threads that are cancelled as they fall asleep. */
#include "t.h"

static volatile int ran;
static void on_signal(int signal) { (void)signal, ran++; }

enum { READ, TIMED_READ, POLL, PPOLL, SELECT, EPOLL, EPOLL_PWAIT, TIMED_ACCEPT, KINDS };
static const char *names[] = {"read", "read with SO_RCVTIMEO", "poll", "ppoll", "select",
                              "epoll_wait", "epoll_pwait", "accept with SO_RCVTIMEO"};

static long wait_on(int kind, int fd, int server, int set) {
    char b[4];
    sigset_t mask;
    sigemptyset(&mask);
    struct pollfd p = {fd, POLLIN, 0};
    struct epoll_event e;
    struct timeval t = {0, 400000};
    struct timespec ts = {0, 400000000};
    fd_set in;
    FD_ZERO(&in); FD_SET(fd, &in);
    switch (kind) {
    case READ: return read(fd, b, 4);
    case TIMED_READ: return read(fd, b, 4);
    case POLL: return poll(&p, 1, 400);
    case PPOLL: return ppoll(&p, 1, &ts, &mask);
    case SELECT: return select(fd + 1, &in, 0, 0, &t);
    case EPOLL: return epoll_wait(set, &e, 1, 400);
    case EPOLL_PWAIT: return epoll_pwait(set, &e, 1, 400, &mask);
    default: return accept(server, 0, 0);
    }
}

static void stopped(int kind, const char *how) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        /* The peer's 7008 sends a little later than it is connected. */
        int fd = tcp(kind == READ ? 7008 : 7001), server = listener(8380), set = epoll_create1(0);
        struct epoll_event e = {.events = EPOLLIN};
        struct timeval t = {0, 400000};
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
        if (kind == TIMED_READ) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        if (kind == TIMED_ACCEPT) setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        errno = 0;
        long got = wait_on(kind, fd, server, set);
        const char *error = got < 0 ? name_of(errno) : "no error";
        NOTE("%s, %s: %ld, %s, ran %d", names[kind], how, got, error, ran);
        _exit(0);
    }
    sleep_ms(160);
    kill(child, SIGSTOP);
    sleep_ms(20);
    kill(child, SIGCONT);
    waitpid(child, 0, 0);
}

static int fd, server, set;
static void *sleeps(void *kind) {
    char b[4];
    struct pollfd p = {fd, POLLIN, 0};
    struct epoll_event e;
    switch ((intptr_t)kind) {
    case 0: recv(fd, b, 4, 0); break;
    case 1: poll(&p, 1, -1); break;
    case 2: epoll_wait(set, &e, 1, -1); break;
    default: accept(server, 0, 0);
    }
    return 0;
}

/* Each time in a process that has cancelled nobody yet. */
static int cancelled(int round) {
    pid_t child = fork();
    if (!child) {
        struct epoll_event e = {.events = EPOLLIN};
        pthread_t threads[4];
        int ended = 0;
        fd = tcp(7001), server = listener(8381), set = epoll_create1(0);
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
        for (intptr_t i = 0; i < 4; i++) pthread_create(&threads[i], 0, sleeps, (void *)i);
        for (volatile int i = 0; i < round * 3000; i++) {}
        for (int i = 0; i < 4; i++) pthread_cancel(threads[(i + round) % 4]);
        for (int i = 0; i < 4; i++) {
            void *left;
            pthread_join(threads[i], &left);
            ended += left == PTHREAD_CANCELED;
        }
        _exit(ended);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void) {
    for (int kind = 0; kind < KINDS; kind++) stopped(kind, "no handler");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGCONT, &action, 0);
    for (int kind = 0; kind < KINDS; kind++) stopped(kind, "handler with SA_RESTART");
    action.sa_flags = 0;
    sigaction(SIGCONT, &action, 0);
    for (int kind = 0; kind < KINDS; kind++) stopped(kind, "handler");
    int ended = 0;
    for (int round = 0; round < 24; round++) ended += cancelled(round);
    NOTE("cancelled %d of %d", ended, 24 * 4);
}
