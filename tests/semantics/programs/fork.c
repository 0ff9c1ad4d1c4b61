/* A listener shared with children; sockets across fork. */
#include "t.h"

static void worker(int server, int number) {
    int fd = accept(server, 0, 0);
    char buf[64];
    ssize_t n = read(fd, buf, sizeof buf);
    if (n > 0 && write(fd, buf, n) != n) _exit(90);
    close(fd);
    _exit(n == 4 ? number : 91);
}

int main(void) {
    char buf[64];
    int server = listener(8370), status, sum = 0;
    for (int i = 1; i <= 2; i++)
        if (!fork()) worker(server, i);
    int first = ask_peer(8370, "ask"), second = ask_peer(8370, "ask");
    for (int i = 0; i < 2; i++) wait(&status), sum += WEXITSTATUS(status);
    NOTE("both workers served: %d", sum == 3);
    close(first), close(second);
    SAY(close(server));

    NOTE("the child serves after the parent has closed");
    server = listener(8371);
    fflush(stdout);
    pid_t child = fork();
    if (!child) worker(server, 7);
    SAY(close(server));
    first = ask_peer(8371, "ask");
    waitpid(child, &status, 0);
    NOTE("exit %d", WEXITSTATUS(status));
    close(first);

    NOTE("the parent goes on with its connection when a child ends");
    int fd = tcp(7001);
    fflush(stdout);
    child = fork();
    if (!child) {
        close(fd);
        _exit(0);
    }
    waitpid(child, &status, 0);
    SAY(write(fd, "still", 5));
    readable(fd);
    SAY(read(fd, buf, sizeof buf));
    child = fork();
    if (!child) _exit(0);
    waitpid(child, &status, 0);
    SAY(write(fd, "here", 4));
    readable(fd);
    SAY(read(fd, buf, sizeof buf));
    SAY(close(fd));

    NOTE("a child makes its own");
    fflush(stdout);
    child = fork();
    if (!child) {
        fd = tcp(7002);
        SAY(read(fd, buf, sizeof buf));
        close(fd);
        _exit(3);
    }
    waitpid(child, &status, 0);
    NOTE("exit %d", WEXITSTATUS(status));
    fd = tcp(7002);
    SAY(read(fd, buf, sizeof buf));
    SAY(close(fd));
}
