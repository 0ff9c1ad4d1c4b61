/* SO_ATTACH_REUSEPORT_CBPF: a program chooses the socket of a group, in order of their binds;
 * sockets of one process, of threads, of forked children. */
#include "t.h"
#include <linux/filter.h>
#include <pthread.h>
#include <sys/wait.h>

#define COUNT 3
#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif

static int grouped(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (port && bind_to(fd, own_ip(), port) < 0) NOTE("bind: %s", strerror(errno));
    return fd;
}

/* By the first byte, a digit. */
static int by_digit(int fd) {
    struct sock_filter code[] = {{0x30, 0, 0, 0}, {0x14, 0, 0, '0'}, {0x16, 0, 0, 0}};
    struct sock_fprog program = {3, code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

static int by_chance(int fd) {
    unsigned chance = SKF_AD_OFF + SKF_AD_RANDOM;
    struct sock_filter code[] = {{0x20, 0, 0, chance}, {0x94, 0, 0, COUNT}, {0x16, 0, 0, 0}};
    struct sock_fprog program = {3, code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

/* Which of the sockets gets it. */
static int taker(int *fds) {
    struct pollfd all[COUNT];
    char byte;
    for (int i = 0; i < COUNT; i++) all[i] = (struct pollfd){fds[i], POLLIN};
    if (poll(all, COUNT, 2000) < 1) return -1;
    for (int i = 0; i < COUNT; i++)
        if (all[i].revents & POLLIN && recv(fds[i], &byte, 1, 0) == 1) return i;
    return -2;
}

static int sent(int from, const char *text, int port) {
    struct sockaddr_in to = at(own_ip(), port);
    return sendto(from, text, strlen(text), 0, (void *)&to, sizeof to);
}

static void in_one_process(void) {
    int none = 0;
    int fds[COUNT], out = socket(AF_INET, SOCK_DGRAM, 0);
    int alone = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(by_digit(alone));
    close(alone);
    for (int i = 0; i < COUNT; i++) fds[i] = grouped(7910);
    SAY(by_digit(fds[1]));
    for (const char *c = "0120212"; *c; c++) {
        char text[] = {*c, 'x', 0};
        sent(out, text, 7910);
        NOTE("%c to %d", *c, taker(fds));
    }
    NOTE("from another machine");
    for (const char *c = "2010"; *c; c++) {
        struct sockaddr_in echo = at(peer_ip(), 7001);
        sendto(fds[0], c, 1, 0, (void *)&echo, sizeof echo);
        NOTE("%c to %d", *c, taker(fds));
    }
    sent(out, "9", 7910);
    NOTE("beyond the last: somebody %d", taker(fds) >= 0);
    sent(out, "", 7910);
    NOTE("the last takes the place of the first");
    struct pollfd first = {fds[0], POLLIN};
    NOTE("the empty one is the first's: %d", poll(&first, 1, 2000));
    close(fds[0]);
    int left[COUNT] = {-1, fds[1], fds[2]};
    for (const char *c = "0101"; *c; c++) {
        char text[] = {*c, 0};
        sent(out, text, 7910);
        NOTE("%c to %d", *c, taker(left));
    }
    SAY(setsockopt(fds[1], SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none, sizeof none));
    SAY(setsockopt(fds[2], SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none, sizeof none));
    sent(out, "0", 7910);
    NOTE("by the hash: somebody %d", taker(left) > 0);
    close(fds[1]), close(fds[2]), close(out);
}

static void chance(void) {
    int fds[COUNT], out = socket(AF_INET, SOCK_DGRAM, 0), seen[COUNT] = {0}, total = 0;
    for (int i = 0; i < COUNT; i++) fds[i] = grouped(7911);
    SAY(by_chance(fds[0]));
    for (int i = 0; i < 60; i++) {
        sent(out, "0", 7911);
        int found = taker(fds);
        if (found >= 0) seen[found]++, total++;
    }
    NOTE("by chance: %d, each some: %d", total, seen[0] && seen[1] && seen[2]);
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(out);
}

/* Answers with its number, until it is told to end. */
static void serve(int fd, int number, int ready) {
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    char text[16], answer[] = {'a' + number};
    recv(fd, text, 1, MSG_DONTWAIT);
    write(ready, "r", 1);
    while (recvfrom(fd, text, sizeof text, 0, (void *)&from, &len) > 0 && text[1] != '.')
        sendto(fd, answer, 1, 0, (void *)&from, len);
}

static void ask(const char *digits, int port) {
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    struct timeval patience = {2, 0};
    setsockopt(out, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (; *digits; digits++) {
        char text[] = {*digits, '?', 0}, answer = '-';
        sent(out, text, port);
        recv(out, &answer, 1, 0);
        NOTE("%c by %c", *digits, answer);
    }
    for (int i = 0; i < COUNT; i++) {
        char text[] = {'0' + i, '.', 0};
        sent(out, text, port);
    }
    close(out);
}

static void in_children(void) {
    int fds[COUNT], ready[2];
    char byte;
    pipe(ready);
    for (int i = 0; i < COUNT; i++) fds[i] = grouped(7912);
    SAY(by_digit(fds[0]));
    for (int i = 0; i < COUNT; i++) {
        if (fork() == 0) {
            for (int k = 0; k < COUNT; k++)
                if (k != i) close(fds[k]);
            serve(fds[i], i, ready[1]);
            _exit(0);
        }
    }
    for (int i = 0; i < COUNT; i++) read(ready[0], &byte, 1);
    ask("012210", 7912);
    int ended = 0;
    while (wait(0) > 0) ended++;
    NOTE("%d children ended", ended);
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(ready[0]), close(ready[1]);
}

struct thread {
    int fd, number, ready;
};

static void *thread(void *of) {
    struct thread *it = of;
    serve(it->fd, it->number, it->ready);
    return 0;
}

static void in_threads(void) {
    struct thread of[COUNT];
    pthread_t threads[COUNT];
    int ready[2];
    char byte;
    pipe(ready);
    for (int i = 0; i < COUNT; i++) of[i] = (struct thread){grouped(7913), i, ready[1]};
    SAY(by_digit(of[2].fd));
    for (int i = 0; i < COUNT; i++) pthread_create(&threads[i], 0, thread, &of[i]);
    for (int i = 0; i < COUNT; i++) read(ready[0], &byte, 1);
    ask("201120", 7913);
    for (int i = 0; i < COUNT; i++) pthread_join(threads[i], 0), close(of[i].fd);
}

int main(void) {
    in_one_process();
    chance();
    in_threads();
    in_children();
    return 0;
}
