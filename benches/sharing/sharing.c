/* Two kinds of UDP echo servers that share an instance, and their client.
 *
 *     sharing busy|asleep ADDRESS PORT     echoes; waits by epoll_wait(0) in a loop, or sleeps
 *     sharing ask ADDRESS PORT SECONDS     one question at a time; prints answers a second, the
 *                                          median and the 99th percentile of their times in us */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { LEN = 64, SAMPLES = 1 << 22, PATIENCE_MS = 1000 };

static float samples[SAMPLES];

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int serve(struct sockaddr_in own, int timeout) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN};
    if (bind(fd, (void *)&own, sizeof own)) return perror("bind"), 1;
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    puts("bound"), fflush(stdout);
    for (;;) {
        if (epoll_wait(set, &event, 1, timeout) < 1) continue;
        char bytes[2048];
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;
        ssize_t got;
        while ((got = recvfrom(fd, bytes, sizeof bytes, 0, (void *)&peer, &len)) >= 0)
            sendto(fd, bytes, got, 0, (void *)&peer, len);
    }
}

static int by_size(const void *a, const void *b) {
    float one = *(const float *)a, other = *(const float *)b;
    return (one > other) - (one < other);
}

static int ask(struct sockaddr_in server, double seconds) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char question[LEN], answer[LEN + 1];
    long count = 0;
    memset(question, 'x', LEN);
    if (connect(fd, (void *)&server, sizeof server)) return perror("connect"), 1;
    double begun = now_us(), last = begun;
    while (last < begun + seconds * 1e6 && count < SAMPLES) {
        struct pollfd wanted = {fd, POLLIN};
        send(fd, question, LEN, 0);
        if (poll(&wanted, 1, PATIENCE_MS) == 0) return fputs("no answer\n", stderr), 1;
        if (recv(fd, answer, sizeof answer, 0) != LEN || memcmp(question, answer, LEN))
            return fputs("other bytes\n", stderr), 1;
        double now = now_us();
        samples[count++] = now - last;
        last = now;
    }
    qsort(samples, count, sizeof *samples, by_size);
    printf("%.0f %.0f %.0f\n", count / (last - begun) * 1e6, samples[count / 2],
           samples[count * 99 / 100]);
    return 0;
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
    inet_pton(AF_INET, words[2], &address.sin_addr);
    if (count == 5) return ask(address, atof(words[4]));
    return serve(address, strcmp(words[1], "busy") ? -1 : 0);
}
