/* O_ASYNC: SIGIO and the signal of F_SETSIG, with what happened, for the owner of a socket. */
#include "t.h"
#include <sys/signalfd.h>

/* linux/fcntl.h */
enum { SET_SIGNAL = 10, GET_SIGNAL = 11 };

static int told_number;
static volatile sig_atomic_t plain, codes, is_exact;

static void on_io(int signal, siginfo_t *info, void *context) {
    static const int bands[] = {0,
                                POLLIN | POLLRDNORM,
                                POLLOUT | POLLWRNORM | POLLWRBAND,
                                0,
                                POLLERR,
                                POLLPRI | POLLRDBAND,
                                POLLHUP | POLLERR};
    if (signal == SIGIO) {
        plain++;
        return;
    }
    int code = info->si_code;
    if (code < 1 || code > 6) code = 0;
    codes |= 1 << code;
    if (info->si_band != bands[code] || info->si_fd != told_number) is_exact = 0;
}

static void asynchronous(int fd, int is_on) {
    int flags = fcntl(fd, F_GETFL);
    SAY(fcntl(fd, F_SETFL, is_on ? flags | O_ASYNC : flags & ~O_ASYNC));
}

static void own(int fd) {
    told_number = fd;
    SAY(fcntl(fd, F_SETOWN, getpid()));
    SAY(fcntl(fd, SET_SIGNAL, SIGRTMIN));
    asynchronous(fd, 1);
    codes = plain = 0, is_exact = 1;
}

/* What was told since the last time. How often depends on segments. */
static void told(const char *when) {
    static const char *names[] = {"?", "IN", "OUT", "MSG", "ERR", "PRI", "HUP"};
    sleep_ms(100);
    printf("%s:", when);
    for (int code = 0; code < 7; code++)
        if (codes & 1 << code) printf(" %s", names[code]);
    printf("%s%s\n", codes ? is_exact ? ", exact" : ", not exact" : " nothing",
           plain ? ", SIGIO" : "");
    fflush(stdout);
    codes = plain = 0, is_exact = 1;
}

static void flags(void) {
    int fd = tcp(7001), on = 1;
    SAY(fcntl(fd, GET_SIGNAL));
    SAY(fcntl(fd, SET_SIGNAL, 65));
    SAY(fcntl(fd, SET_SIGNAL, SIGUSR2));
    SAY(fcntl(fd, GET_SIGNAL));
    NOTE("%d", !!(fcntl(fd, F_GETFL) & O_ASYNC));
    asynchronous(fd, 1);
    NOTE("%d", !!(fcntl(fd, F_GETFL) & O_ASYNC));
    on = 0;
    SAY(ioctl(fd, FIOASYNC, &on));
    NOTE("%d", !!(fcntl(fd, F_GETFL) & O_ASYNC));
    SAY(fcntl(fd, SET_SIGNAL, 0));
    /* The signal without more. */
    SAY(fcntl(fd, F_SETOWN, getpid()));
    on = 1;
    SAY(ioctl(fd, FIOASYNC, &on));
    write(fd, "x", 1);
    told("an echo");
    asynchronous(fd, 0);
    write(fd, "x", 1);
    told("an echo unheard");
    close(fd);
}

static void streams(void) {
    char buf[100];
    int fd = tcp(7001);
    own(fd);
    told("nothing happened");
    write(fd, "one", 3);
    told("an echo");
    write(fd, "two", 3);
    told("another beside the first");
    SAY(read_all(fd, buf, 6));
    told("read");
    shutdown(fd, SHUT_WR);
    told("both ends");
    close(fd);

    fd = tcp(7002);
    sleep_ms(100);
    own(fd);
    told("over before");
    close(fd);

    fd = tcp(7008);
    own(fd);
    sleep_ms(300);
    told("late text");
    close(fd);

    fd = tcp(7007);
    own(fd);
    write(fd, "x", 1);
    told("reset");
    close(fd);
}

static void room(void) {
    static char buf[1 << 16];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    own(fd);
    nonblocking(fd);
    SAY(connect_to(fd, peer_ip(), 7001));
    told("connected");
    while (write(fd, buf, sizeof buf) > 0) {}
    sleep_ms(300);
    while (write(fd, buf, sizeof buf) > 0) {}
    codes = 0;
    for (int n = 0; n < 50; n++) {
        while (read(fd, buf, sizeof buf) > 0) {}
        sleep_ms(10);
    }
    NOTE("room was told: %d", !!(codes & 1 << POLL_OUT));
    close(fd);
}

static void arrivals(void) {
    int l = listener(8480);
    own(l);
    int asked = ask_peer(8480, "hello");
    told("a connection");
    int fd = accept(l, 0, 0);
    NOTE("%d %d", fd >= 0, !!(fcntl(fd, F_GETFL) & O_ASYNC));
    close(fd), close(asked);
    asked = ask_peer(8480, "echo");
    fd = accept(l, 0, 0);
    told("another");
    own(fd);
    write(fd, "x", 1);
    told("its echo");
    close(fd), close(l), close(asked);
}

static void datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect_to(fd, peer_ip(), 7001);
    own(fd);
    write(fd, "x", 1);
    told("an answer");
    close(fd);
}

static void waited(void) {
    struct timespec second = {1, 0};
    sigset_t set;
    siginfo_t info;
    char b[10];
    sigemptyset(&set), sigaddset(&set, SIGRTMIN), sigprocmask(SIG_BLOCK, &set, 0);
    int fd = tcp(7001);
    own(fd);
    for (int n = 0; n < 2; n++) {
        write(fd, "x", 1);
        int signal = n ? sigtimedwait(&set, &info, &second) : sigwaitinfo(&set, &info);
        NOTE("%d %d %d", signal == SIGRTMIN, info.si_code == POLL_IN, info.si_fd == fd);
        SAY(read_all(fd, b, 1));
    }
    struct signalfd_siginfo read_info = {0};
    int from = OPEN(signalfd(-1, &set, 0));
    write(fd, "x", 1);
    SAY(read(from, &read_info, sizeof read_info));
    NOTE("%d %d, band %d", read_info.ssi_code == POLL_IN, read_info.ssi_fd == fd,
         read_info.ssi_band);
    close(from), close(fd);
    sigprocmask(SIG_UNBLOCK, &set, 0);
}

/* F_SETOWN_EX: a thread as the owner. */
static volatile pid_t signalled;
static int go_on[2];

static void on_thread(int signal) { (void)signal, signalled = gettid(); }

static void *owner_thread(void *tid) {
    char b;
    *(volatile pid_t *)tid = gettid();
    while (read(go_on[0], &b, 1) < 0) {}
    return 0;
}

static void threads(void) {
    enum { SET_OWNER = 15, GET_OWNER = 16 };
    struct { int kind, id; } owner = {0, 0}, none = {7, 7};
    volatile pid_t tid = 0;
    pthread_t thread;
    char b[10];
    pipe(go_on);
    signal(SIGIO, on_thread), signal(SIGURG, on_thread), signal(SIGRTMIN, on_thread);
    pthread_create(&thread, 0, owner_thread, (void *)&tid);
    while (!tid) usleep(1000);
    int fd = tcp(7001);
    SAY(fcntl(fd, GET_OWNER, &none));
    NOTE("%d %d", none.kind, none.id);
    for (int kind = 2; kind >= 0; kind--) {
        owner.kind = kind, owner.id = kind == 0 ? tid : kind == 1 ? getpid() : getpgrp();
        SAY(fcntl(fd, SET_OWNER, &owner));
        SAY(fcntl(fd, GET_OWNER, &none));
        NOTE("%d %d", none.kind, none.id == owner.id);
        NOTE("%d", fcntl(fd, F_GETOWN) == (kind == 2 ? -owner.id : owner.id));
    }
    owner.kind = 3;
    SAY(fcntl(fd, SET_OWNER, &owner));
    for (int number = 0; number < 2; number++) {
        SAY(fcntl(fd, SET_SIGNAL, number ? SIGRTMIN : 0));
        asynchronous(fd, 1);
        signalled = 0;
        write(fd, "x", 1);
        sleep_ms(100);
        NOTE("%s", signalled == tid ? "the thread" : signalled ? "another" : "nobody");
        SAY(read(fd, b, sizeof b));
    }
    owner.kind = 0, owner.id = 0x3fffff;
    SAY(fcntl(fd, SET_OWNER, &owner));
    write(go_on[1], "x", 1);
    pthread_join(thread, 0);
    close(fd);
}

int main(void) {
    struct sigaction act = {.sa_sigaction = on_io, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGIO, &act, 0), sigaction(SIGRTMIN, &act, 0);
    flags();
    streams();
    room();
    arrivals();
    datagrams();
    waited();
    threads();
}
