/* An echo server that confines itself once it listens, before it has waited for anything.
   `confines_early PORT HOW END`: `prctl`, `tsync` (seccomp(2) for all threads); `handler` ends in
   order at SIGTERM, `once` too, by a handler with SA_RESETHAND, `default` does not catch it. */

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MANY 16
#define ALLOW(name)                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confine(int is_for_all) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* What the program does. */
        ALLOW(poll), ALLOW(accept), ALLOW(read), ALLOW(write), ALLOW(close), ALLOW(recvfrom),
        ALLOW(sendto), ALLOW(futex), ALLOW(exit_group), ALLOW(rt_sigreturn),
        ALLOW(rt_sigprocmask),
        /* What malloc does. */
        ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(madvise),
        /* What an engine does besides. */
        ALLOW(ppoll), ALLOW(sendmsg), ALLOW(sendmmsg), ALLOW(recvmsg), ALLOW(getsockopt),
        ALLOW(dup), ALLOW(fcntl),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    long result = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (result == 0 && is_for_all)
        result =
            syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    else if (result == 0)
        result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (result != 0)
        perror("confine");
}

static int bound(int kind, int port) {
    int sock = socket(AF_INET, kind, 0), yes = 1;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(sock, (struct sockaddr *)&name, sizeof name) != 0)
        return perror("bind"), exit(2), -1;
    return sock;
}

static void answer(int sock) {
    char bytes[4096];
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    ssize_t count = recvfrom(sock, bytes, sizeof bytes, 0, (struct sockaddr *)&peer, &len);
    if (count > 0)
        sendto(sock, bytes, (size_t)count, 0, (struct sockaddr *)&peer, len);
}

static volatile sig_atomic_t is_over;

static void end(int signal, siginfo_t *info, void *context) {
    (void)context;
    is_over = signal == SIGTERM && info->si_signo == SIGTERM && info->si_pid > 0;
}

static int serve(int listener, int datagrams) {
    struct pollfd waits[MANY] = {{listener, POLLIN, 0}, {datagrams, POLLIN, 0}};
    int used = 2;
    char bytes[4096];
    while (!is_over) {
        if (poll(waits, (nfds_t)used, -1) < 1) {
            if (is_over)
                break;
            return 3;
        }
        if (waits[0].revents && used < MANY)
            waits[used++] = (struct pollfd){accept(listener, NULL, NULL), POLLIN, 0};
        if (waits[1].revents)
            answer(datagrams);
        for (int at = 2; at < used; at++) {
            if (waits[at].fd < 0 || !waits[at].revents)
                continue;
            ssize_t count = read(waits[at].fd, bytes, sizeof bytes);
            if (count > 0 && write(waits[at].fd, bytes, (size_t)count) != count)
                return 4;
            if (count <= 0) {
                close(waits[at].fd);
                waits[at--] = waits[--used];
            }
        }
    }
    while (used-- > 0)
        close(waits[used].fd);
    return 0;
}

int main(int count, char **words) {
    if (count != 4)
        return 2;
    if (strcmp(words[3], "default") != 0) {
        int is_once = strcmp(words[3], "once") == 0;
        struct sigaction action = {.sa_sigaction = end,
                                   .sa_flags = SA_SIGINFO | (is_once ? (int)SA_RESETHAND : 0)};
        sigaction(SIGTERM, &action, NULL);
    }
    int port = atoi(words[1]);
    int listener = bound(SOCK_STREAM, port), datagrams = bound(SOCK_DGRAM, port);
    if (listen(listener, 16) != 0)
        return perror("listen"), 2;
    confine(strcmp(words[2], "tsync") == 0);
    write(1, "listening\n", 10);
    return serve(listener, datagrams);
}
