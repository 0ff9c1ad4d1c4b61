/* Two threads that set, change and remove the filter of a UDP socket: afterwards the socket tells
 * the filter by which it drops, and a process that gets it has the same. */
#include "t.h"
#include <linux/filter.h>

enum { ROUNDS = 400, PORT = 8690 };
static int fd;
static pthread_barrier_t both;

/* Drops what begins with the letter, behind the header of UDP. */
static void attach(char letter, int len) {
    struct sock_filter code[64], last[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, letter, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, -1)};
    struct sock_fprog filter = {len, code};
    for (int i = 0; i < len; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1);
    memcpy(code + len - 4, last, sizeof last);
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

/* The other thread removes the filter in some rounds. */
static void *other(void *removes) {
    int none = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&both);
        if (removes) setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
        else attach('b', 40);
        pthread_barrier_wait(&both);
    }
    return 0;
}

/* The first of three datagrams that is not dropped tells the filter: none, of 20 or of 40. */
static int told(int at_fd) {
    socklen_t len = 0;
    getsockopt(at_fd, SOL_SOCKET, SO_GET_FILTER, 0, &len);
    return len;
}
static int found(int from, struct sockaddr_in *own, int at_fd) {
    int has_a = 0, has_b = 0;
    sendto(from, "a", 1, 0, (void *)own, sizeof *own);
    sendto(from, "b", 1, 0, (void *)own, sizeof *own);
    sendto(from, "c", 1, 0, (void *)own, sizeof *own);
    for (char byte = 0; byte != 'c' && recv(at_fd, &byte, 1, 0) == 1;)
        has_a |= byte == 'a', has_b |= byte == 'b';
    return !has_a ? 20 : !has_b ? 40 : 0;
}

static void race(const char *name, const char *ip, int removes, int port) {
    int from = socket(AF_INET, SOCK_DGRAM, 0), same = 0, kept = 0;
    struct sockaddr_in own = at(own_ip(), port);
    struct timeval wait = {1, 0};
    pthread_t thread;
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    bind_to(fd, ip, port);
    bind_to(from, own_ip(), 0);
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&thread, 0, other, removes ? &both : 0);
    for (int i = 0; i < ROUNDS; i++) {
        int pair[2];
        pthread_barrier_wait(&both);
        attach('a', 20);
        pthread_barrier_wait(&both);
        int len = told(fd);
        same += len == found(from, &own, fd);
        if (i % 50) continue;
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        send_fd(pair[0], fd);
        int copy = receive_fd(pair[1]);
        kept += len == told(copy);
        close(copy), close(pair[0]), close(pair[1]);
    }
    pthread_join(thread, 0);
    NOTE("%s: the same in %d of %d rounds, kept %d of %d times", name, same, ROUNDS, kept,
         ROUNDS / 50);
    close(fd), close(from);
}

int main(void) {
    race("two filters", own_ip(), 0, PORT);
    race("a filter and none", own_ip(), 1, PORT + 1);
    race("two filters, at any address", "0.0.0.0", 0, PORT + 2);
    race("a filter and none, at any address", "0.0.0.0", 1, PORT + 3);
}
