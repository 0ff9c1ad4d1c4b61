/* A server whose child serves a connection for a while, then confines itself and serves on.
   `confines_late PORT HOW`: `prctl`, `tsync` (seccomp(2) for all threads), `epoll`
   (waits so), `limit` (no further descriptor), `alone` (the process that accepted), `thread` (the
   same, which goes on listening; its filter ends the thread alone, as it does with the next call).
   A line that begins with B is answered by much at once, which is the child's end. */

#include <arpa/inet.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST 20
#define MUCH (1 << 20)
#define ALLOW(name)                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static const char *how;
static char much[MUCH];

static int is(const char *what) {
    return strcmp(how, what) == 0;
}

static void confine(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(poll), ALLOW(epoll_wait), ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K,
                 is("thread") ? SECCOMP_RET_KILL_THREAD : SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct rlimit none = {0, 0};
    long result = 0;
    if (is("limit"))
        result = setrlimit(RLIMIT_NOFILE, &none) | setrlimit(RLIMIT_NPROC, &none);
    else if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        result = -1;
    else if (is("tsync"))
        result =
            syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    else
        result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (result != 0)
        perror("confine");
}

static int put(int sock, const char *bytes, ssize_t count) {
    for (ssize_t done = 0, once; done < count; done += once)
        if ((once = write(sock, bytes + done, (size_t)(count - done))) <= 0)
            return -1;
    return 0;
}

static int serve(int sock) {
    struct pollfd waits = {sock, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN};
    char bytes[4096];
    int set = is("epoll") ? epoll_create1(0) : -1;
    if (set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, sock, &event) != 0)
        return 6;
    for (int answers = 0;; answers++) {
        ssize_t count;
        if (answers == FIRST)
            confine();
        if (answers == FIRST && is("thread"))
            getppid();
        if (set >= 0 && epoll_wait(set, &event, 1, -1) != 1)
            return 7;
        if (set < 0 && !is("limit") && poll(&waits, 1, -1) != 1)
            return 3;
        count = read(sock, bytes, sizeof bytes);
        if (count <= 0)
            return count == 0 ? 0 : 4;
        if (bytes[0] == 'B')
            return put(sock, much, MUCH) == 0 ? 0 : 8;
        if (put(sock, bytes, count) != 0)
            return 5;
    }
}

int main(int count, char **words) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in name = {.sin_family = AF_INET};
    if (count != 3 || listener < 0)
        return 2;
    how = words[2];
    name.sin_port = htons((unsigned short)atoi(words[1]));
    memset(much, 'm', sizeof much);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) != 0 || listen(listener, 16) != 0)
        return perror("bind"), 2;
    puts("listening");
    fflush(stdout);
    for (;;) {
        int status, sock = accept(listener, NULL, NULL);
        pid_t child = sock < 0 ? -1 : is("alone") || is("thread") ? 0 : fork();
        if (child == 0) {
            if (!is("thread"))
                close(listener);
            _exit(serve(sock));
        }
        if (sock < 0 || child < 0)
            return perror("accept"), 2;
        close(sock);
        if (waitpid(-1, &status, 0) != child)
            puts("another child");
        printf("%s %d\n", WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        fflush(stdout);
    }
}
