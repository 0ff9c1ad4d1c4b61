/* Signals and waits. Each wait is on a socket; a timer or a thread raises the signal. */
#include "t.h"
#include <setjmp.h>

static volatile int ran;
static void on_signal(int signal) { (void)signal, ran++; }
static volatile int code, value;
static void on_info(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    ran++, code = info->si_code, value = info->si_value.sival_int;
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(signal, &action, 0);
}

static void alarm_ms(int ms) {
    struct itimerval t = {.it_value = {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &t, 0);
}

static pthread_t main_thread;
static void *kill_later(void *argument) {
    sleep_ms((intptr_t)argument);
    pthread_kill(main_thread, SIGUSR1);
    return 0;
}

static void interrupted(int flags) {
    char buf[8];
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0), fd = tcp(7001), server = listener(8340);
    struct pollfd p = {fd, POLLIN, 0};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    handle(SIGALRM, flags);
    ran = 0;
    long start = now_ms();
    alarm_ms(50);
    SAY(epoll_wait(set, &event, 1, 400));
    NOTE("ran %d, %s", ran, took(start, 50));
    start = now_ms();
    alarm_ms(50);
    SAY(poll(&p, 1, 400));
    NOTE("ran %d, %s", ran, took(start, 50));
    fd_set in;
    FD_ZERO(&in); FD_SET(fd, &in);
    alarm_ms(50);
    struct timeval second = {1, 0};
    SAY(select(fd + 1, &in, 0, 0, &second));
    NOTE("ran %d", ran);
    /* A receive timeout makes reads non-restartable, so these have none. */
    if (!(flags & SA_RESTART)) {
        alarm_ms(50);
        SAY(read(fd, buf, 1));
        alarm_ms(50);
        SAY(recv(fd, buf, 1, 0));
        alarm_ms(50);
        SAY(accept(server, 0, 0));
        NOTE("ran %d", ran);
    } else {
        int late = tcp(7008);
        alarm_ms(50);
        SAY(read(late, buf, 8));
        NOTE("ran %d", ran);
        close(late);
        struct timeval t = {0, 200000};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        alarm_ms(50);
        SAY(read(fd, buf, 1));
        NOTE("ran %d", ran);
    }
    close(set), close(fd), close(server);
}

static void masks(void) {
    int fd = tcp(7001);
    struct pollfd p = {fd, POLLIN, 0};
    sigset_t block, open;
    sigemptyset(&open);
    sigemptyset(&block), sigaddset(&block, SIGUSR1);
    handle(SIGUSR1, 0);
    ran = 0;
    SAY(sigprocmask(SIG_BLOCK, &block, 0));
    SAY(kill(getpid(), SIGUSR1));
    SAY(poll(&p, 1, 50));
    SAY(ran);
    struct timespec t = {1, 0};
    long start = now_ms();
    SAY(ppoll(&p, 1, &t, &open));
    NOTE("ran %d, %s", ran, took(start, 0));
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    SAY(kill(getpid(), SIGUSR1));
    SAY(epoll_pwait(set, &event, 1, 1000, &open));
    SAY(ran);
    fd_set in;
    FD_ZERO(&in); FD_SET(fd, &in);
    SAY(kill(getpid(), SIGUSR1));
    SAY(pselect(fd + 1, &in, 0, 0, &t, &open));
    SAY(ran);
    /* Blocked by the call's mask while the thread's own lets it through. */
    sigprocmask(SIG_UNBLOCK, &block, 0);
    pthread_t thread;
    pthread_create(&thread, 0, kill_later, (void *)30);
    t = (struct timespec){0, 100000000};
    SAY(ppoll(&p, 1, &t, &block));
    NOTE("ran %d", ran);
    pthread_join(thread, 0);
    close(set), close(fd);
}

static sigjmp_buf back;
static void on_jump(int signal) { siglongjmp(back, signal); }

/* A timeout as of old: the handler leaves the waiting call for good. */
static void jumps(void) {
    char buf[8];
    int fd = tcp(7001);
    struct pollfd p = {fd, POLLIN, 0};
    struct sigaction action = {.sa_handler = on_jump}, old;
    sigaction(SIGALRM, &action, &old);
    for (int i = 0; i < 3; i++) {
        int got = sigsetjmp(back, 1);
        if (!got) {
            alarm_ms(30);
            if (i == 0) SAY(read(fd, buf, 1));
            else if (i == 1) SAY(poll(&p, 1, 1000));
            else sleep_ms(1000);
        }
        NOTE("back by %s", got == SIGALRM ? "SIGALRM" : "the end of the call");
        SAY(write(fd, "abc", 3));
        SAY(recv(fd, buf, 3, MSG_WAITALL));
    }
    sigaction(SIGALRM, &old, 0);
    close(fd);
}

static void settings(void) {
    struct sigaction old, action = {.sa_sigaction = on_info, .sa_flags = SA_SIGINFO};
    int fd = tcp(7001);
    sigaction(SIGTERM, 0, &old);
    NOTE("SIGTERM default: %d", old.sa_handler == SIG_DFL);
    SAY(sigaction(SIGUSR2, &action, &old));
    NOTE("before: default %d", old.sa_handler == SIG_DFL);
    SAY(sigaction(SIGUSR2, 0, &old));
    NOTE("ours %d, flags %s", old.sa_sigaction == on_info,
         old.sa_flags & SA_SIGINFO ? "SIGINFO" : "");
    ran = 0;
    SAY(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 42}));
    NOTE("ran %d, queued %d, value %d", ran, code == SI_QUEUE, value);
    NOTE("signal() gives the old one: %d", signal(SIGUSR2, SIG_IGN) == (void *)on_info);
    NOTE("then %d", signal(SIGUSR2, SIG_DFL) == SIG_IGN);
    handle(SIGUSR2, SA_RESETHAND);
    raise(SIGUSR2);
    sigaction(SIGUSR2, 0, &old);
    NOTE("once, then default: %d", old.sa_handler == SIG_DFL);
    errno = 0;
    NOTE("SIGKILL: %s", signal(SIGKILL, on_signal) == SIG_ERR ? name_of(errno) : "?");
    close(fd);
}

static void ended_by(int signal) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int fd = tcp(7001);
        if (write(fd, "x", 1)) {}
        struct sigaction old;
        sigaction(signal, 0, &old);
        if (old.sa_handler != SIG_DFL) _exit(9);
        kill(getpid(), signal);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    NOTE("%s: signalled %d, by it %d", sigabbrev_np(signal), WIFSIGNALED(status),
         WTERMSIG(status) == signal);
}

int main(void) {
    main_thread = pthread_self();
    NOTE("without SA_RESTART");
    interrupted(0);
    NOTE("with SA_RESTART");
    interrupted(SA_RESTART);
    masks();
    jumps();
    settings();
    signal(SIGPIPE, SIG_DFL), signal(SIGALRM, SIG_DFL);
    ended_by(SIGTERM);
    ended_by(SIGINT);
    ended_by(SIGHUP);
    ended_by(SIGALRM);
    ended_by(SIGVTALRM);
    ended_by(SIGKILL);

    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int fd = tcp(7001);
        shutdown(fd, SHUT_WR);
        if (write(fd, "x", 1)) {}
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    NOTE("writing after shutdown: SIGPIPE %d", WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}
