/* Forks while other threads of the program use its sockets, and make and close others.
   `forks_among_threads FORKS PEER`: each child uses all sockets within ten seconds, and those that
   are connected to PEER have that address in it too. Says `done`. */

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKETS 20
#define THREADS 3
#define LIMIT_S 10

static int socks[SOCKETS];
static struct sockaddr_in peer = {.sin_family = AF_INET};

static int use(int sock) {
    int type;
    socklen_t length = sizeof type;
    return getsockopt(sock, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_DGRAM;
}

/* Every second one is connected. */
static int is_as_made(int at) {
    struct sockaddr_in found;
    socklen_t length = sizeof found;
    if (at % 2 == 0)
        return use(socks[at]);
    return getpeername(socks[at], (struct sockaddr *)&found, &length) == 0 &&
           found.sin_addr.s_addr == peer.sin_addr.s_addr;
}

static void *use_all(void *nothing) {
    for (;;) {
        int fresh = socket(AF_INET, SOCK_DGRAM, 0);
        for (int at = 0; at < SOCKETS; at++)
            if (!is_as_made(at))
                exit(3);
        if (fresh < 0 || close(fresh) != 0)
            exit(4);
    }
    return nothing;
}

static int child(void) {
    alarm(LIMIT_S);
    for (int at = 0; at < SOCKETS; at++)
        if (!is_as_made(at) || close(socks[at]) != 0)
            return 5;
    int fresh = socket(AF_INET, SOCK_DGRAM, 0);
    return fresh >= 0 && use(fresh) ? 0 : 6;
}

int main(int count, char **words) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    pthread_t thread;
    if (count != 3 || inet_pton(AF_INET, words[2], &peer.sin_addr) != 1)
        return 2;
    peer.sin_port = htons(9);
    for (int at = 0; at < SOCKETS; at++) {
        socks[at] = socket(AF_INET, SOCK_DGRAM, 0);
        if (bind(socks[at], (struct sockaddr *)&name, sizeof name) != 0)
            return perror("bind"), 2;
        if (at % 2 == 1 && connect(socks[at], (struct sockaddr *)&peer, sizeof peer) != 0)
            return perror("connect"), 2;
    }
    for (int at = 0; at < THREADS; at++)
        if (pthread_create(&thread, NULL, use_all, NULL) != 0)
            return 2;
    for (long forks = atol(words[1]); forks > 0; forks--) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(child());
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return fprintf(stderr, "%ld left, status %x\n", forks, status), 1;
    }
    puts("done");
    fflush(stdout);
    _exit(0);
}
