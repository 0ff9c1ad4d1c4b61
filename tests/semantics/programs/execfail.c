/* exec fails and the program goes on with what it has: connections, a listener, datagrams. */
#include "t.h"

static void echo(const char *what, int fd) {
    char b[4] = "";
    NOTE("%s", what);
    SAY(send(fd, "abc", 3, 0));
    SAY(recv(fd, b, 3, 0));
}

int main(void) {
    char *argv[] = {"x", 0}, *none[] = {0};
    struct timeval t = {1, 0};
    signal(SIGPIPE, SIG_IGN);
    int fd = tcp(7001), l = listener(8519), u = socket(AF_INET, SOCK_DGRAM, 0);
    struct pollfd p = {l, POLLIN, 0};
    SAY(poll(&p, 1, 0));
    SAY(bind_to(u, own_ip(), 8519));
    SAY(connect_to(u, peer_ip(), 7001));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    SAY(execl("/nonexistent", "x", NULL));
    SAY(execv("/etc/passwd", argv));
    SAY(execve("/", argv, none));
    SAY(execve(NULL, argv, none));
    SAY(execvp("no-such-program-at-all", argv));
    SAY(execvp("/nonexistent/either", argv));
    SAY(execlp("", "x", NULL));
    echo("connection", fd);
    echo("datagrams", u);
    int asked = ask_peer(8519, "hello");
    SAY(poll(&p, 1, 500));
    OPEN(accept(l, 0, 0));

    NOTE("not a program");
    char path[] = "/tmp/ss-execfail-XXXXXX";
    int file = mkstemp(path);
    if (write(file, "nothing", 7) != 7) return 1;
    fchmod(file, 0700), close(file);
    SAY(execv(path, argv));
    unlink(path);
    /* The connections of before are gone on the stack; what follows works. */
    fd = tcp(7001);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    echo("new connection", fd);
    echo("datagrams", u);
    asked = ask_peer(8519, "hello");
    SAY(poll(&p, 1, 500));
    OPEN(accept(l, 0, 0));
    return 0;
}
