/* Which handlers run, and in which order: calls with a signal mask of their own, signals that
 * queue. */
#include "t.h"

static char order[256];
static void on_signal(int signal, siginfo_t *info, void *context) {
    ucontext_t *to = context;
    sprintf(order + strlen(order), " %d/%d%s", signal - SIGRTMIN, info->si_value.sival_int,
            sigismember(&to->uc_sigmask, SIGRTMIN + 3) ? "+" : "");
}

#define TELL(call) (order[0] = 0, SAY(call), NOTE("  ran:%s", order))

static void to_process(int signal, int value) {
    sigqueue(getpid(), SIGRTMIN + signal, (union sigval){.sival_int = value});
}
static void to_thread(int signal, int value) {
    pthread_sigqueue(pthread_self(), SIGRTMIN + signal, (union sigval){.sival_int = value});
}

static sigset_t none, block;
static void let_all_in(void) {
    order[0] = 0;
    sigprocmask(SIG_SETMASK, &none, 0);
    NOTE("  then:%s", order);
    sigprocmask(SIG_BLOCK, &block, 0);
}

static void waits(int quiet, int ready) {
    struct timespec t = {0, 50000000}, zero = {0, 0};
    struct pollfd q = {quiet, POLLIN, 0}, r = {ready, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN};
    int qset = epoll_create1(0), rset = epoll_create1(0);
    epoll_ctl(qset, EPOLL_CTL_ADD, quiet, &event);
    epoll_ctl(rset, EPOLL_CTL_ADD, ready, &event);
    fd_set in;

    NOTE("something is ready");
    to_process(0, 1);
    TELL(ppoll(&r, 1, &t, &none));
    FD_ZERO(&in); FD_SET(ready, &in);
    TELL(pselect(ready + 1, &in, 0, 0, &t, &none));
    TELL(epoll_pwait(rset, &event, 1, 50, &none));
    TELL(epoll_pwait2(rset, &event, 1, &t, &none));
    NOTE("nothing is, and the call does not wait");
    TELL(epoll_pwait(qset, &event, 1, 0, &none));
    TELL(ppoll(&q, 1, &zero, &none));
    to_process(0, 1);
    FD_ZERO(&in); FD_SET(quiet, &in);
    TELL(pselect(quiet + 1, &in, 0, 0, &zero, &none));
    NOTE("it waits");
    to_process(0, 1);
    TELL(epoll_pwait(qset, &event, 1, 50, &none));
    to_process(0, 1);
    TELL(ppoll(&q, 1, &t, &none));
    TELL(ppoll(&q, 1, &t, &none));
    NOTE("its own mask keeps them out");
    to_process(0, 1);
    TELL(ppoll(&q, 1, &t, &block));
    let_all_in();

    for (int own = 0; own < 2; own++) {
        void (*raise)(int, int) = own ? to_thread : to_process;
        NOTE("many, for the %s", own ? "thread" : "process");
        raise(2, 1), raise(2, 2), raise(0, 1), raise(0, 2), raise(1, 1);
        TELL(ppoll(&q, 1, &t, &none));
        let_all_in();
        raise(0, 1), raise(0, 2), raise(0, 3), to_process(0, 4), raise(0, 5);
        TELL(epoll_pwait(qset, &event, 1, 50, &none));
        let_all_in();
    }
    close(qset), close(rset);
}

static pthread_t main_thread;
static void *three(void *unused) {
    sleep_ms(50);
    for (int i = 1; i <= 3; i++)
        pthread_sigqueue(main_thread, SIGRTMIN + 1, (union sigval){.sival_int = i});
    return unused;
}

int main(void) {
    int quiet = tcp(7001), ready = tcp(7001);
    if (write(ready, "x", 1) != 1) return 1;
    readable(ready);
    sigemptyset(&none), sigemptyset(&block);
    for (int i = 0; i < 4; i++) sigaddset(&block, SIGRTMIN + i);
    for (int all = 0; all < 2; all++) {
        struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
        if (all) sigfillset(&action.sa_mask);
        NOTE("handlers block %s", all ? "all others" : "themselves");
        for (int i = 0; i < 4; i++) sigaction(SIGRTMIN + i, &action, 0);
        sigprocmask(SIG_BLOCK, &block, 0);
        waits(quiet, ready);
        sigprocmask(SIG_SETMASK, &none, 0);
    }
    NOTE("from another thread");
    main_thread = pthread_self();
    pthread_t thread;
    char buf[4];
    struct timeval half = {0, 300000};
    setsockopt(quiet, SOL_SOCKET, SO_RCVTIMEO, &half, sizeof half);
    pthread_create(&thread, 0, three, 0);
    order[0] = 0;
    SAY(recv(quiet, buf, 4, 0));
    pthread_join(thread, 0);
    NOTE("  ran:%s", order);
}
