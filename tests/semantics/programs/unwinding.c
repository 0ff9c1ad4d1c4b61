/* Threads that end inside a call: cancelled at any instruction, or by pthread_exit in a handler. */
#include "t.h"

static int fd, server, kernels[2];

static void cleaned(void *who) { NOTE("  %s is cleaned up", (char *)who); }

static void leave(int signal) { pthread_exit((void *)(intptr_t)signal); }

static void *waits(void *which) {
    char b[4];
    struct pollfd p = {fd, POLLIN, 0};
    struct epoll_event e = {.events = EPOLLIN};
    int set = epoll_create1(0), way = (intptr_t)which;
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
    if (way >= 5) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    pthread_cleanup_push(cleaned, "the caller");
    switch (way % 5) {
    case 0: recv(fd, b, 4, 0); break;
    case 1: poll(&p, 1, 2000); break;
    case 2: epoll_wait(set, &e, 1, 2000); break;
    case 3: accept(server, 0, 0); break;
    case 4: read(kernels[0], b, 4); break;
    }
    pthread_cleanup_pop(0);
    return 0;
}

int main(void) {
    server = listener(8373), fd = tcp(7001);
    SAY(pipe(kernels));
    struct timeval t = {2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    signal(SIGUSR1, leave);
    for (int exits = 0; exits < 2; exits++)
        for (int i = 0; i < 10; i++) {
            pthread_t thread;
            void *left;
            pthread_create(&thread, 0, waits, (void *)(intptr_t)i);
            sleep_ms(50);
            if (exits) pthread_kill(thread, SIGUSR1);
            else pthread_cancel(thread);
            pthread_join(thread, &left);
            const char *how = left == PTHREAD_CANCELED  ? "cancelled"
                              : left == (void *)SIGUSR1 ? "has left"
                                                        : "goes on";
            NOTE("wait %d: %s", i, how);
        }
}
