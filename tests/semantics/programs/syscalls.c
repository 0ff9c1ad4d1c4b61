/* System calls on sockets by libc's syscall(). */
#include "t.h"
#include <linux/time_types.h>
#include <sys/syscall.h>

static volatile int ran;
static void on_signal(int signal) { (void)signal, ran++; }

static const char *left(struct timespec t, long from_ms) {
    long ms = t.tv_sec * 1000 + t.tv_nsec / 1000000;
    return ms < 0 || ms > from_ms ? "more than there was"
           : ms == 0              ? "nothing"
           : ms > from_ms - 150   ? "most"
                                  : "some";
}

static void polls(int quiet, int ready) {
    struct pollfd p[2] = {{ready, POLLIN, 0}, {quiet, POLLIN, 0}};
    SAY(syscall(SYS_poll, p, 2, 1000));
    NOTE("%x %x", p[0].revents, p[1].revents);
    long start = now_ms();
    SAY(syscall(SYS_poll, p + 1, 1, 50));
    NOTE("%s", took(start, 50));
    struct timespec t = {1, 0};
    SAY(syscall(SYS_ppoll, p, 2, &t, 0, 0));
    NOTE("left: %s", left(t, 1000));
    t = (struct timespec){0, 50000000};
    SAY(syscall(SYS_ppoll, p + 1, 1, &t, 0, 8));
    NOTE("left: %s", left(t, 50));
    uint64_t mask = 0;
    SAY(syscall(SYS_ppoll, p, 2, 0, &mask, 8));
    SAY(syscall(SYS_ppoll, p, 2, 0, &mask, 16));
    t = (struct timespec){0, 2000000000};
    SAY(syscall(SYS_ppoll, p, 2, &t, 0, 0));
}

static void selects(int quiet, int ready) {
    int most = (quiet > ready ? quiet : ready) + 1;
    fd_set in;
    FD_ZERO(&in); FD_SET(quiet, &in), FD_SET(ready, &in);
    struct timeval v = {1, 0};
    SAY(syscall(SYS_select, most, &in, 0, 0, &v));
    NOTE("%d %d", !!FD_ISSET(ready, &in), !!FD_ISSET(quiet, &in));
    FD_ZERO(&in); FD_SET(quiet, &in);
    v = (struct timeval){0, 50000};
    SAY(syscall(SYS_select, most, &in, 0, 0, &v));
    NOTE("%d, %ld left", !!FD_ISSET(quiet, &in), v.tv_sec * 1000 + v.tv_usec / 1000);
    FD_ZERO(&in); FD_SET(ready, &in);
    struct timespec t = {1, 0};
    uint64_t mask = 0;
    struct { void *set; size_t len; } set = {&mask, 8};
    SAY(syscall(SYS_pselect6, most, &in, 0, 0, &t, &set));
    NOTE("%d, left: %s", !!FD_ISSET(ready, &in), left(t, 1000));
    FD_ZERO(&in); FD_SET(quiet, &in);
    t = (struct timespec){0, 50000000};
    SAY(syscall(SYS_pselect6, most, &in, 0, 0, &t, 0));
    NOTE("left: %s", left(t, 50));
    set.len = 4;
    SAY(syscall(SYS_pselect6, most, &in, 0, 0, &t, &set));
    set.set = 0;
    SAY(syscall(SYS_pselect6, most, &in, 0, 0, &t, &set));
}

static void sets(int quiet, int ready) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77}, got;
    int set = OPEN(syscall(SYS_epoll_create, 1));
    SAY(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, quiet, &event));
    SAY(syscall(SYS_epoll_wait, set, &got, 1, 20));
    SAY(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, ready, &event));
    SAY(syscall(SYS_epoll_wait, set, &got, 1, 1000));
    NOTE("%x, %d", got.events, (int)got.data.u64);
    uint64_t mask = 0;
    SAY(syscall(SYS_epoll_pwait, set, &got, 1, 1000, &mask, 8));
    SAY(syscall(SYS_epoll_pwait, set, &got, 1, 1000, &mask, 12));
    SAY(syscall(SYS_epoll_pwait, set, &got, 1, 1000, 0, 12));
    struct timespec t = {1, 0};
    SAY(syscall(SYS_epoll_pwait2, set, &got, 1, &t, &mask, 8));
    SAY(syscall(SYS_epoll_pwait2, set, &got, 1, &t, &mask, 0));
    SAY(syscall(SYS_close, set));
    SAY(syscall(SYS_epoll_wait, set, &got, 1, 0));
}

static void numbers(int fd) {
    char buf[8];
    SAY(syscall(SYS_dup2, fd, 70));
    SAY(syscall(SYS_dup2, fd, fd) == fd);
    SAY(syscall(SYS_dup3, fd, 71, O_CLOEXEC));
    SAY(syscall(SYS_fcntl, 71, F_GETFD));
    SAY(syscall(SYS_write, 70, "abc", 3));
    readable(71);
    SAY(syscall(SYS_read, 71, buf, 8));
    SAY(syscall(SYS_dup2, 0, 70));
    SAY(write(70, "abc", 3));
    SAY(syscall(SYS_dup2, 999, 71));
    SAY(syscall(SYS_close, 71));
    SAY(syscall(SYS_read, 71, buf, 8));
    SAY(syscall(SYS_close, 70));
}

static void messages(int fd) {
    char a[4] = "", b[4] = "";
    struct iovec out[2] = {{"ab", 2}, {"cd", 2}}, in[2] = {{a, 3}, {b, 3}};
    struct mmsghdr sent[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 1}},
                              {.msg_hdr = {.msg_iov = out + 1, .msg_iovlen = 1}}};
    struct mmsghdr got[2] = {{.msg_hdr = {.msg_iov = in, .msg_iovlen = 2}}};
    struct timespec t = {1, 0};
    SAY(syscall(SYS_sendmmsg, fd, sent, 2, 0));
    sleep_ms(50);
    SAY(syscall(SYS_recvmmsg, fd, got, 1, 0, &t));
    NOTE("%u: %.3s%.1s", got[0].msg_len, a, b);
    SAY(syscall(SYS_pwritev2, fd, out, 2, -1L, -1L, 0));
    sleep_ms(50);
    SAY(syscall(SYS_preadv2, fd, in, 2, -1L, -1L, 0));
    NOTE("%.3s%.1s", a, b);
    SAY(syscall(SYS_preadv2, fd, in, 2, -1L, -1L, 8));
    SAY(syscall(SYS_preadv2, fd, in, 2, 0L, 0L, 0));
}

/* struct sigaction as the kernel has it. */
struct action { void (*handler)(int); unsigned long flags; void *restorer; uint64_t mask; };

static void on_return(void);
__asm__(".pushsection .text\non_return: mov $15, %eax\nsyscall\n.popsection");

static void handlers(int quiet) {
    struct action action = {on_signal, 0x04000000, on_return, 0}, old = {0};
    struct sigaction seen;
    SAY(syscall(SYS_rt_sigaction, SIGALRM, &action, &old, 8));
    NOTE("before: default %d", old.handler == SIG_DFL);
    sigaction(SIGALRM, 0, &seen);
    NOTE("seen by libc: %d", seen.sa_handler == on_signal);
    struct itimerval timer = {.it_value = {0, 50000}};
    setitimer(ITIMER_REAL, &timer, 0);
    struct pollfd p = {quiet, POLLIN, 0};
    SAY(poll(&p, 1, 1000));
    SAY(ran);
    SAY(syscall(SYS_rt_sigaction, SIGALRM, 0, &old, 8));
    NOTE("ours: %d", old.handler == on_signal);
    SAY(syscall(SYS_rt_sigaction, SIGKILL, &action, 0, 8));
    SAY(syscall(SYS_rt_sigaction, SIGALRM, &action, 0, 4));
}

static void children(int fd, char *self) {
    int status;
    char buf[8];
    for (int i = 0; i < 2; i++) {
        long child = i ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : syscall(SYS_fork);
        if (!child) {
            long n = write(fd, "child", 5);
            readable(fd);
            n += read_all(fd, buf, 5);
            NOTE("the child has %ld", n);
            syscall(SYS_exit_group, 7);
        }
        waitpid(child, &status, 0);
        NOTE("it left with %d", WEXITSTATUS(status));
    }
    SAY(write(fd, "parent", 6));
    SAY(read_all(fd, buf, 6));
    if (!fork()) {
        char *argv[] = {self, "again", 0}, *env[] = {0, 0};
        char ip[64];
        snprintf(ip, sizeof ip, "PEER_IP=%s", peer_ip());
        env[0] = ip;
        syscall(SYS_execve, self, argv, env);
        _exit(1);
    }
    wait(&status);
    NOTE("the new program left with %d", WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    char buf[8];
    if (argc > 1) {
        int fd = tcp(7001);
        SAY(write(fd, "x", 1));
        SAY(read(fd, buf, 8));
        return 3;
    }
    int quiet = tcp(7001), ready = tcp(7001);
    if (write(ready, "x", 1) != 1) return 1;
    readable(ready);
    polls(quiet, ready);
    selects(quiet, ready);
    sets(quiet, ready);
    numbers(quiet);
    messages(quiet);
    handlers(quiet);
    children(quiet, argv[0]);
}
