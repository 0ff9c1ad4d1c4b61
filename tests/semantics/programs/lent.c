/* A connection that a child uses after the parent has closed its number while a thread of it was
 * inside a call; and one that a child uses whose maker ends: its options stay. */
#include "t.h"

static int fd;

static void on_signal(int signal) { (void)signal; }

static void *reader(void *unused) {
    char byte;
    (void)unused;
    SAY(read(fd, &byte, 1));
    return 0;
}

static int option(int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, name, &value, &len) ? -1 : value;
}

static void user(void) {
    struct linger linger = {-1, -1};
    socklen_t len = sizeof linger;
    pid_t maker = getppid();
    char buf[8];
    write(fd, "abc", 3);
    read_all(fd, buf, 3);
    while (getppid() == maker) sleep_ms(10);
    sleep_ms(100);
    write(fd, "def", 3);
    NOTE("the user reads %ld", read_all(fd, buf, 3));
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len);
    NOTE("linger %d %d, inline %d, no delay %d", linger.l_onoff, linger.l_linger,
         option(SOL_SOCKET, SO_OOBINLINE), option(IPPROTO_TCP, TCP_NODELAY));
}

static void maker_ends(void) {
    int ends[2], one = 1;
    struct linger linger = {1, 7};
    char end;
    SAY(pipe(ends));
    fflush(stdout);
    if (!fork()) {
        fd = tcp(7001);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!fork()) {
            user();
            _exit(0);
        }
        sleep_ms(100);
        _exit(0);
    }
    close(ends[1]);
    SAY(read(ends[0], &end, 1));
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, 0);
    fd = tcp(7001);
    pthread_t thread;
    pthread_create(&thread, 0, reader, 0);
    sleep_ms(100);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        char buf[8];
        sleep_ms(600);
        int is_sent = write(fd, "abc", 3) == 3;
        _exit(is_sent ? 10 + read_all(fd, buf, 3) : 1);
    }
    sleep_ms(100);
    SAY(close(fd));
    sleep_ms(100);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, 0);
    int status;
    waitpid(child, &status, 0);
    NOTE("the child: %d", WEXITSTATUS(status));
    maker_ends();
}
