/* A signal that comes together with events: the wait tells the events, and the handler runs. */
#include "t.h"

#define ROUNDS 3000
/* The kernel's own calls look for events and then for signals: a byte and its signal between the
 * two looks are EINTR, which a busy machine makes of one round or two. */
#define FEW 10

static volatile sig_atomic_t handled;

static void on_signal(int number) { handled++; }

/* The child writes a byte, which is there when it has returned, and then signals. */
static pid_t begin(int bytes, int next) {
    pid_t parent = getpid(), child = fork();
    if (child) return child;
    char byte;
    while (read(next, &byte, 1) == 1) {
        if (write(bytes, "b", 1) != 1) break;
        kill(parent, SIGUSR1);
    }
    _exit(0);
}

enum way { EPOLL, POLL, SELECT };

static int await(enum way way, int set, int fd, int served) {
    struct epoll_event events[4];
    struct pollfd both[] = {{fd, POLLIN, 0}, {served, POLLIN, 0}};
    fd_set read_fds;
    switch (way) {
    case EPOLL: return epoll_wait(set, events, 4, 5000);
    case POLL: return poll(both, 2, 5000);
    default:
        FD_ZERO(&read_fds);
        FD_SET(fd, &read_fds), FD_SET(served, &read_fds);
        int count = (fd > served ? fd : served) + 1;
        return select(count, &read_fds, NULL, NULL, &(struct timeval){5, 0});
    }
}

static void rounds(const char *name, enum way way, int served) {
    int bytes[2], next[2], set = epoll_create1(EPOLL_CLOEXEC), interrupted = 0;
    if (pipe(bytes) || pipe(next)) exit(1);
    for (int i = 0; i < 2; i++) {
        int fd = i ? served : bytes[0];
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}});
    }
    handled = 0;
    pid_t child = begin(bytes[1], next[0]);
    for (int round = 0; round < ROUNDS; round++) {
        char byte;
        if (write(next[1], "n", 1) != 1) exit(1);
        while (await(way, set, bytes[0], served) < 0) {
            if (errno != EINTR) exit(1);
            interrupted++;
        }
        if (read(bytes[0], &byte, 1) != 1) exit(1);
        while (handled <= round) usleep(1);
    }
    close(next[0]), close(next[1]), close(bytes[1]);
    kill(child, SIGKILL), waitpid(child, NULL, 0);
    NOTE("%s: EINTR in place of an event %s, %d handlers", name,
         interrupted <= FEW ? "never or by chance" : "again and again", (int)handled);
    close(bytes[0]), close(set);
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    int fd = listener(7071);
    rounds("epoll_wait", EPOLL, fd);
    rounds("poll", POLL, fd);
    rounds("select", SELECT, fd);
    return 0;
}
