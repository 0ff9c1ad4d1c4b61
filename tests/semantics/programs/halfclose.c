/* shutdown, FIN from either side, and what is readable after it. */
#include "t.h"

int main(void) {
    char buf[64];
    signal(SIGPIPE, SIG_IGN);
    int fd = tcp(7006);
    SAY(write(fd, "x", 1));
    SAY(shutdown(fd, SHUT_WR));
    SAY(shutdown(fd, SHUT_WR));
    SAY(write(fd, "x", 1));
    SAY(close(fd));

    fd = tcp(7004);
    SAY(write(fd, "12345", 5));
    SAY(shutdown(fd, SHUT_WR));
    long n = read_all(fd, buf, sizeof buf);
    NOTE("%ld bytes: %.*s", n, (int)n, buf);
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("both closed", p.revents);
    SAY(read(fd, buf, 1));
    SAY(shutdown(fd, SHUT_RD));
    SAY(close(fd));

    fd = tcp(7002);
    sleep_ms(50);
    p = (struct pollfd){fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("peer closed, data waits", p.revents);
    SAY(read(fd, buf, sizeof buf));
    SAY(poll(&p, 1, 0));
    say_poll("peer closed, all read", p.revents);
    SAY(read(fd, buf, sizeof buf));
    SAY(write(fd, "x", 1));
    SAY(close(fd));

    fd = tcp(7001);
    SAY(shutdown(fd, SHUT_RD));
    SAY(read(fd, buf, 1));
    SAY(write(fd, "y", 1));
    p = (struct pollfd){fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 0));
    say_poll("reading shut", p.revents);
    SAY(close(fd));

    fd = tcp(7006);
    SAY(write(fd, "abc", 3));
    SAY(shutdown(fd, SHUT_RDWR));
    p = (struct pollfd){fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 200));
    SAY(p.revents & POLLHUP ? 1 : 0);
    SAY(write(fd, "x", 1));
    SAY(close(fd));

    /* Accepted side. */
    int server = listener(8300);
    int asked = ask_peer(8300, "ask");
    fd = OPEN(accept(server, 0, 0));
    SAY(read(fd, buf, sizeof buf));
    SAY(write(fd, "word\n", 5));
    SAY(shutdown(fd, SHUT_WR));
    n = read_all(fd, buf, sizeof buf);
    NOTE("%ld bytes: %.*s", n, (int)n, buf);
    SAY(close(fd));
    close(asked);
    close(server);
}
