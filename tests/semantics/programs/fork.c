/* A listener shared with children; sockets across fork. */
#include "t.h"

static int serve_one(int server) {
    int fd = accept(server, 0, 0);
    char buf[64];
    ssize_t n = read(fd, buf, sizeof buf);
    if (n > 0 && write(fd, buf, n) != n) return 90;
    close(fd);
    return n == 4 ? 7 : 91;
}

/* Whether a child ends by itself; one that does not is ended. */
static int ends(pid_t child) {
    int status;
    for (int ms = 0; ms < 3000; ms++) {
        if (waitpid(child, &status, WNOHANG) == child) return 1;
        sleep_ms(1);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 0;
}

int main(void) {
    char buf[64];
    int server = listener(8370), status, served = 0, workers[2];
    for (int i = 0; i < 2; i++) {
        workers[i] = fork();
        if (!workers[i])
            for (;;) serve_one(server);
    }
    sleep_ms(200);
    for (int i = 0; i < 12; i++) {
        int asked = ask_peer(8370, "ask");
        /* "connected", and EOF when the worker has answered and closed. */
        served += read_all(asked, buf, 10) == 10 && read_all(asked, buf, 1) == 0;
        close(asked);
    }
    NOTE("served by two workers: %d", served);
    for (int i = 0; i < 2; i++) {
        kill(workers[i], SIGTERM);
        waitpid(workers[i], &status, 0);
        NOTE("ended by SIGTERM: %d", WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    SAY(close(server));

    NOTE("the child serves after the parent has closed");
    server = listener(8371);
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(serve_one(server));
    SAY(close(server));
    sleep_ms(200);
    int first = ask_peer(8371, "ask");
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

    NOTE("somebody looks after the owner of a socket while children are made");
    fflush(stdout);
    fd = tcp(7001);
    int all = 1;
    for (int i = 0; all && i < 300; i++) {
        if (fcntl(fd, F_SETOWN, getpid())) NOTE("F_SETOWN: %s", name_of(errno));
        child = fork();
        if (!child) _exit(0);
        all = ends(child);
    }
    NOTE("children end: %d", all);
    SAY(close(fd));
}
