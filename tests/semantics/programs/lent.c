/* A connection that a child uses after the parent has closed its number while a thread of it was
 * inside a call. */
#include "t.h"

static int fd;

static void on_signal(int signal) { (void)signal; }

static void *reader(void *unused) {
    char byte;
    (void)unused;
    SAY(read(fd, &byte, 1));
    return 0;
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
}
