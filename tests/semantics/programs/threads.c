/* Several threads on one socket and on several. */
#include "t.h"

static int fd, server, set;
static volatile int served;

static void *reader(void *argument) {
    (void)argument;
    char buf[4];
    long total = 0;
    ssize_t n;
    while ((n = read(fd, buf, sizeof buf)) > 0) total += n;
    return (void *)total;
}

static void *acceptor(void *argument) {
    (void)argument;
    char buf[64];
    int got = accept(server, 0, 0);
    if (got < 0) return (void *)1;
    ssize_t n = read(got, buf, sizeof buf);
    if (n > 0 && write(got, buf, n) == n) __sync_fetch_and_add(&served, 1);
    close(got);
    return 0;
}

static void *waiter(void *argument) {
    (void)argument;
    struct epoll_event event;
    long n = epoll_wait(set, &event, 1, 1000);
    return (void *)n;
}

static void *client(void *argument) {
    (void)argument;
    int own = tcp(7001);
    char buf[64];
    for (int i = 0; i < 50; i++) {
        int len = sprintf(buf, "message %d", i);
        if (write(own, buf, len) != len) return (void *)1;
        if (recv(own, buf, len, MSG_WAITALL) != len || atoi(buf + 8) != i) return (void *)2;
    }
    close(own);
    return 0;
}

int main(void) {
    pthread_t threads[8];
    void *result;
    long sum = 0;

    fd = tcp(7002);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, reader, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], &result), sum += (long)result;
    NOTE("three readers of one socket got %ld bytes", sum);
    close(fd);

    server = listener(8380);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, acceptor, 0);
    int asked[3];
    for (int i = 0; i < 3; i++) asked[i] = ask_peer(8380, "ask");
    for (int i = 0; i < 3; i++) pthread_join(threads[i], &result), close(asked[i]);
    NOTE("three threads accepted and served %d", served);

    sum = 0;
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, client, 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], &result), sum += (long)result;
    NOTE("eight clients, failures: %ld", sum);

    set = epoll_create1(0);
    fd = tcp(7008);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    sum = 0;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, waiter, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &result), sum += (long)result;
    NOTE("an edge woke %ld of two waiters", sum);

    /* One thread waits in read, another shuts the socket down. */
    int other = tcp(7001);
    fd = other;
    pthread_create(&threads[0], 0, reader, 0);
    sleep_ms(100);
    SAY(shutdown(other, SHUT_RDWR));
    pthread_join(threads[0], &result);
    NOTE("reader ended with %ld", (long)result);
    close(other);

    /* A blocked thread can be cancelled. */
    fd = tcp(7001);
    pthread_create(&threads[0], 0, reader, 0);
    sleep_ms(100);
    SAY(pthread_cancel(threads[0]));
    pthread_join(threads[0], &result);
    NOTE("cancelled: %d", result == PTHREAD_CANCELED);
    SAY(write(fd, "x", 1));
    close(fd);
}
