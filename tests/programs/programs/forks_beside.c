/* An echo server that forks at a rate beside its connections. `forks_beside PORT FORKS` forks every
   millisecond from SIGUSR1 on, and says `forked` when all children have ended, with their number
   and the milliseconds that it took. One child in ten answers what its parent has read; of the
   others some close all that they have inherited, the rest ends at once. */

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64
#define ROOM 4096
#define PAUSE_NS 1000000

static long forked, ended, wanted, answers_wanted;

static volatile sig_atomic_t is_begun;

static void begin(int signal) {
    is_begun = signal == SIGUSR1;
}

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void send_all(int sock, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t sent = send(sock, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0)
            exit(5);
        bytes += sent, count -= (size_t)sent;
    }
}

static void reap(void) {
    int status;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        if (status != 0)
            exit(6);
        ended++;
    }
}

/* A child that has nothing to answer. */
static void beside(void) {
    pid_t child = fork();
    if (child == 0) {
        if (forked % 10 == 1)
            closefrom(3);
        _exit(0);
    }
    if (child < 0)
        exit(7);
    forked++;
}

static void answer(int sock) {
    char bytes[ROOM];
    ssize_t count = recv(sock, bytes, sizeof bytes, 0);
    pid_t child = 0;
    if (count <= 0) {
        close(sock);
        return;
    }
    if (answers_wanted > 0) {
        answers_wanted--;
        child = fork();
        if (child != 0)
            forked++;
        if (child != 0)
            return;
        send_all(sock, bytes, (size_t)count);
        _exit(0);
    }
    send_all(sock, bytes, (size_t)count);
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    wanted = atol(words[2]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(EPOLL_CLOEXEC), yes = 1;
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((unsigned short)atoi(words[1]))};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) != 0 || listen(listener, 2000) != 0 ||
        epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) != 0)
        return perror("listen"), 2;
    signal(SIGUSR1, begin);
    long began = 0;
    for (long next = 0; ended < wanted;) {
        int found = epoll_wait(set, events, EVENTS, 1);
        for (int at = 0; at < found; at++) {
            if (events[at].data.fd != listener) {
                answer(events[at].data.fd);
                continue;
            }
            event.data.fd = accept(listener, NULL, NULL);
            epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
        }
        if (is_begun && !next)
            began = next = now_ns();
        /* One at a time: connections are served between any two. */
        if (next && forked < wanted && now_ns() >= next) {
            next += PAUSE_NS;
            if (forked % 10 == 0 && answers_wanted == 0)
                answers_wanted++;
            else
                beside();
        }
        reap();
    }
    printf("forked %ld %ld\n", forked, (now_ns() - began) / 1000000);
    fflush(stdout);
    for (;;) {
        int found = epoll_wait(set, events, EVENTS, -1);
        for (int at = 0; at < found; at++)
            if (events[at].data.fd != listener)
                answer(events[at].data.fd);
    }
}
