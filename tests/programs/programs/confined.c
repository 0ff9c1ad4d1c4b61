/* A server as sshd and vsftpd are: a child for each connection confines itself before it uses what
   it has inherited, and echoes. `confined PORT limit` allows it no further descriptor, `confined
   PORT filter` only the system calls that it makes. */

#include <arpa/inet.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(name)                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confine(int is_filter) {
    /* poll(2) takes no more descriptors than the limit has. */
    struct rlimit few = {is_filter, is_filter};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(poll), ALLOW(ppoll), ALLOW(getpid), ALLOW(exit_group),
        ALLOW(munmap), ALLOW(mmap), ALLOW(close), ALLOW(futex), ALLOW(clock_gettime),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0)
        perror("setrlimit");
    if (is_filter && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0))
        perror("prctl");
}

static void echo(int sock, int polls) {
    char bytes[4096];
    struct pollfd waits = {sock, POLLIN, 0};
    for (;;) {
        ssize_t count;
        if (polls && poll(&waits, 1, -1) != 1)
            _exit(3);
        count = read(sock, bytes, sizeof bytes);
        if (count <= 0)
            _exit(count == 0 ? 0 : 4);
        for (ssize_t done = 0; done < count;) {
            ssize_t written = write(sock, bytes + done, (size_t)(count - done));
            if (written <= 0)
                _exit(5);
            done += written;
        }
    }
}

int main(int count, char **words) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((unsigned short)atoi(words[1]))};
    if (count != 3 || listener < 0)
        return 2;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) != 0 || listen(listener, 16) != 0)
        return perror("bind"), 2;
    for (;;) {
        int status, sock = accept(listener, NULL, NULL);
        pid_t child = sock < 0 ? -1 : fork();
        if (child == 0) {
            int is_filter = strcmp(words[2], "filter") == 0;
            confine(is_filter);
            echo(sock, is_filter);
        }
        if (sock < 0 || child < 0)
            return perror("accept"), 2;
        close(sock);
        waitpid(child, &status, 0);
        printf("%s %d\n", WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        fflush(stdout);
    }
}
