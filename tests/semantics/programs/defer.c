/* TCP_DEFER_ACCEPT: a connection is handed over when it brings something. */
#include "t.h"

static int set(int fd, int seconds) {
    return setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
}

static int seconds_of(int fd) {
    int seconds = -1;
    socklen_t len = sizeof seconds;
    return getsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, &len) ? -2 : seconds;
}

static int waits(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, ms);
}

/* The peer says that its side of the connection is made. */
static int begin(int port, const char *what) {
    char line[16] = "";
    int control = ask_peer(port, what);
    NOTE("%s", what), read_all(control, line, 10), NOTE("%s", strtok(line, "\n"));
    return control;
}

static void take(int server, int control) {
    char buf[16];
    int fd = OPEN(accept4(server, 0, 0, SOCK_NONBLOCK));
    ssize_t n = SAY(recv(fd, buf, sizeof buf, MSG_DONTWAIT));
    if (n > 0) NOTE("%.*s", (int)n - 1, buf);
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    SAY(getpeername(fd, (void *)&from, &len));
    close(fd), close(control);
}

int main(void) {
    int server = listener(8431);
    for (int i = 0; i <= 8; i++) SAY(set(server, i)), NOTE("%d: %d", i, seconds_of(server));
    SAY(set(server, -3)), NOTE("%d", seconds_of(server));
    SAY(set(server, 5)), SAY(waits(server, 0));
    int control = begin(8431, "late");
    SAY(waits(server, 100)), SAY(waits(server, 1000)), take(server, control);
    control = begin(8431, "hello");
    SAY(waits(server, 1000)), take(server, control);
    control = begin(8431, "bye");
    SAY(waits(server, 1000)), take(server, control);
    SAY(set(server, 1));
    long since = now_ms();
    control = begin(8431, "silent");
    SAY(waits(server, 500)), SAY(waits(server, 3000)), NOTE("%s", took(since, 1000)),
        take(server, control);
    SAY(set(server, 3)), since = now_ms();
    control = begin(8431, "silent");
    SAY(waits(server, 2500)), SAY(waits(server, 6000)), NOTE("%s", took(since, 3000)),
        take(server, control);
    SAY(set(server, 0));
    control = begin(8431, "silent");
    SAY(waits(server, 100)), take(server, control);
    NOTE("two at once"), SAY(set(server, 5));
    int first = begin(8431, "late"), second = begin(8431, "hello");
    SAY(waits(server, 100)), take(server, second), SAY(waits(server, 1000)), take(server, first);
    NOTE("closed meanwhile"), control = begin(8431, "late"), close(server);
    char rest[16];
    readable(control), NOTE("%zd", read(control, rest, sizeof rest));
    return 0;
}
