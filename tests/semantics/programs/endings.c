/* Ends of processes with several threads: exit while others wait, the end of the last thread, forks
 * at any moment. */
#include "t.h"

static int said[2];

static void tell(const char *what) { write(said[1], what, strlen(what)); }

/* What children have told since the last time, or nothing. */
static void hear(const char *what, int count) {
    char text[256] = "";
    nonblocking(said[0]);
    long n = read(said[0], text, sizeof text - 1);
    NOTE("%s: %d ended in order, told: %s", what, count, n > 0 ? text : "nothing");
}

static void *reader(void *fd) {
    char buf[64];
    ssize_t n = read((long)fd, buf, sizeof buf);
    tell(n < 0 ? name_of(errno) : n ? "data " : "end ");
    return 0;
}

static void *asker(void *fd) {
    char buf[64];
    for (;;)
        if (recv((long)fd, buf, sizeof buf, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
            return tell("asked "), NULL;
}

static void *sender(void *fd) {
    static char buf[65536];
    for (;;)
        if (send((long)fd, buf, sizeof buf, 0) < 0) return tell(name_of(errno)), NULL;
}

static void *watcher(void *fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, (long)fd, &event);
    epoll_wait(set, &event, 1, -1);
    return tell("event "), NULL;
}

static void *poller(void *fd) {
    struct pollfd p = {(long)fd, POLLIN, 0};
    poll(&p, 1, -1);
    return tell("poll "), NULL;
}

static void *acceptor(void *fd) { return accept((long)fd, 0, 0), tell("accept "), NULL; }

/* How it ended: its status, or the number of a signal and a hundred. */
static int end_of(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void start(void *(*run)(void *), long fd) {
    pthread_t thread;
    pthread_create(&thread, 0, run, (void *)fd);
    pthread_detach(thread);
}

static void exit_while_others_wait(void) {
    int in_order = 0;
    for (int i = 0; i < 6; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(10);
            for (int j = 0; j < 3; j++) start(reader, tcp(7001));
            start(watcher, tcp(7001));
            start(poller, tcp(7001));
            start(asker, tcp(7001));
            start(sender, tcp(7004));
            start(acceptor, listener(8410));
            sleep_ms(30);
            exit(7);
        }
        in_order += end_of(child) == 7;
    }
    hear("exit while others wait", in_order);
}

static void bye(void) { tell("bye "); }

static void *late(void *fd) {
    sleep_ms(150);
    tell(write((long)fd, "x", 1) == 1 ? "late " : "lost ");
    return 0;
}

static void *leaver(void *unused) {
    (void)unused;
    tcp(7001);
    atexit(bye);
    pthread_exit(0);
}

static void the_last_thread_ends(void) {
    pid_t child = fork();
    if (!child) {
        alarm(10);
        leaver(0);
    }
    int status = end_of(child);
    hear("the only thread ends", status);

    child = fork();
    if (!child) {
        alarm(10);
        start(late, tcp(7001));
        leaver(0);
    }
    status = end_of(child);
    hear("the first thread ends, then the last", status);

    child = fork();
    if (!child) {
        alarm(10);
        tcp(7001);
        if (!fork()) alarm(10), leaver(0);
        wait(&status);
        exit(WEXITSTATUS(status) + 1);
    }
    status = end_of(child);
    hear("the only thread of a child's child ends", status);
}

static void *first_call(void *unused) {
    (void)unused;
    close(tcp(7002));
    return 0;
}

/* A child forks while another thread of its makes the first call of all. */
static void forks_at_any_moment(void) {
    int in_order = 0;
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(10);
            start(first_call, 0);
            struct timespec pause = {0, i * 150000};
            nanosleep(&pause, 0);
            pid_t grandchild = fork();
            if (!grandchild) {
                alarm(5);
                char text[8];
                _exit(read_all(tcp(7002), text, 6) == 6 ? 0 : 1);
            }
            _exit(end_of(grandchild));
        }
        in_order += end_of(child) == 0;
    }
    NOTE("forks while another thread makes the first call: %d of 20", in_order);
}

int main(void) {
    pipe(said);
    forks_at_any_moment();
    exit_while_others_wait();
    the_last_thread_ends();
}
