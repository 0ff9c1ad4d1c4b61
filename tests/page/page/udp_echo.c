/* UDP echo of 64 bytes, without packages.
 *
 *     udp_echo serve ADDRESS PORT            answers what comes, until a signal
 *     udp_echo ask ADDRESS PORT SECONDS      prints answers a second: SOCKETS sockets with
 *                                            AT_ONCE questions under way on each */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { SOCKETS = 8, AT_ONCE = 8, LEN = 64, PATIENCE_MS = 200 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int serve(struct sockaddr_in own) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(fd, (void *)&own, sizeof own)) return perror("bind"), 1;
    puts("bound"), fflush(stdout);
    for (;;) {
        char bytes[2048];
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;
        ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (void *)&peer, &len);
        if (got >= 0) sendto(fd, bytes, got, 0, (void *)&peer, len);
    }
}

static int ask(struct sockaddr_in server, double seconds) {
    struct pollfd socks[SOCKETS];
    char question[LEN], answer[LEN + 1];
    long count = 0;
    memset(question, 'x', LEN);
    for (int i = 0; i < SOCKETS; i++) {
        socks[i] = (struct pollfd){socket(AF_INET, SOCK_DGRAM, 0), POLLIN, 0};
        if (connect(socks[i].fd, (void *)&server, sizeof server)) return perror("connect"), 1;
        for (int n = 0; n < AT_ONCE; n++) send(socks[i].fd, question, LEN, 0);
    }
    double begun = now(), end = begun + seconds;
    while (now() < end) {
        if (poll(socks, SOCKETS, PATIENCE_MS) == 0) return fputs("answers are lost\n", stderr), 1;
        for (int i = 0; i < SOCKETS; i++) {
            if (!socks[i].revents) continue;
            while (recv(socks[i].fd, answer, sizeof answer, MSG_DONTWAIT) == LEN) {
                if (memcmp(question, answer, LEN)) return fputs("other bytes\n", stderr), 1;
                send(socks[i].fd, question, LEN, 0);
                count++;
            }
        }
    }
    printf("%.1f\n", count / (now() - begun));
    return 0;
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
    inet_pton(AF_INET, words[2], &address.sin_addr);
    return count == 4 ? serve(address) : ask(address, atof(words[4]));
}
