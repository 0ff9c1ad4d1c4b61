/* An echo server whose threads die. `dying_threads PORT SETS TOTAL`: each of SETS epoll sets, with
   its own SO_REUSEPORT listener and UDP socket, is served by one thread after another. A thread
   ends after a few events, by return, pthread_exit or pthread_cancel in its wait; TOTAL in all, all
   but the last of each set. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 3

struct set {
    int epoll, listener, datagrams;
};

struct turn {
    struct set *set;
    pthread_t before;
    int cancels;
};

static atomic_int left;

static void *serve(void *given);

static void start(struct set *set, int cancels) {
    struct turn *turn = malloc(sizeof *turn);
    pthread_t thread;
    *turn = (struct turn){set, pthread_self(), cancels};
    if (turn == NULL || pthread_create(&thread, NULL, serve, turn) != 0)
        perror("pthread_create"), exit(2);
}

static int bound(int kind, int port) {
    int sock = socket(AF_INET, kind, 0), yes = 1;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    setsockopt(sock, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    if (bind(sock, (struct sockaddr *)&name, sizeof name) != 0)
        perror("bind"), exit(2);
    return sock;
}

static void watch(struct set *set, int sock) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = sock};
    if (sock < 0 || epoll_ctl(set->epoll, EPOLL_CTL_ADD, sock, &event) != 0)
        perror("watch"), exit(2);
}

static void on_event(struct set *set, int sock) {
    char bytes[65536];
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    if (sock == set->listener) {
        watch(set, accept(sock, NULL, NULL));
        return;
    }
    ssize_t count = recvfrom(sock, bytes, sizeof bytes, 0, (struct sockaddr *)&peer, &len);
    if (sock == set->datagrams)
        sendto(sock, bytes, (size_t)count, 0, (struct sockaddr *)&peer, len);
    else if (count <= 0)
        close(sock);
    else
        for (ssize_t done = 0, once; done < count; done += once)
            if ((once = write(sock, bytes + done, (size_t)(count - done))) <= 0)
                return;
}

static void *serve(void *given) {
    struct turn turn = *(struct turn *)given;
    struct epoll_event event;
    int number = atomic_fetch_sub(&left, 1), how = number % 3;
    free(given);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    if (turn.cancels) {
        pthread_cancel(turn.before);
        pthread_join(turn.before, NULL);
    }
    for (int events = 0; number <= 0 || events < EVENTS; events++)
        if (epoll_wait(turn.set->epoll, &event, 1, -1) == 1)
            on_event(turn.set, event.data.fd);
    start(turn.set, how == 2);
    if (how == 2) {
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        for (;;)
            if (epoll_wait(turn.set->epoll, &event, 1, -1) == 1) {
                pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
                on_event(turn.set, event.data.fd);
                pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
            }
    }
    pthread_detach(pthread_self());
    if (how == 1)
        pthread_exit(NULL);
    return NULL;
}

int main(int count, char **words) {
    if (count != 4)
        return 2;
    int sets = atoi(words[2]);
    left = atoi(words[3]);
    for (int at = 0; at < sets; at++) {
        struct set *set = malloc(sizeof *set);
        int port = atoi(words[1]);
        *set = (struct set){epoll_create1(0), bound(SOCK_STREAM, port), bound(SOCK_DGRAM, port)};
        if (listen(set->listener, 64) != 0)
            return perror("listen"), 2;
        watch(set, set->listener);
        watch(set, set->datagrams);
        start(set, 0);
    }
    puts("listening");
    fflush(stdout);
    for (int last = 1; last > 0; usleep(10000))
        last = left;
    puts("the last threads");
    fflush(stdout);
    pthread_exit(NULL);
}
