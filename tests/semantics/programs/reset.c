/* Resets: given, taken, and what they leave. */
#include "t.h"

static volatile int pipes;
static void on_pipe(int signal) { (void)signal, pipes++; }

int main(void) {
    char buf[64];
    signal(SIGPIPE, on_pipe);
    int fd = tcp(7007);
    SAY(write(fd, "x", 1));
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    sleep_ms(100);
    SAY(poll(&p, 1, 1000));
    say_poll("after a reset", p.revents);
    SAY(read(fd, buf, 1));
    SAY(read(fd, buf, 1));
    SAY(write(fd, "x", 1));
    SAY(pipes);
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(pipes);
    SAY(so_error(fd));
    SAY(shutdown(fd, SHUT_WR));
    SAY(close(fd));

    fd = tcp(7007);
    SAY(write(fd, "x", 1));
    sleep_ms(100);
    SAY(write(fd, "x", 1));
    SAY(pipes);
    SAY(write(fd, "x", 1));
    SAY(pipes);
    SAY(read(fd, buf, 1));
    SAY(close(fd));

    fd = tcp(7007);
    SAY(write(fd, "x", 1));
    sleep_ms(100);
    NOTE("SO_ERROR %s", name_of(so_error(fd)));
    SAY(so_error(fd));
    SAY(read(fd, buf, 1));
    SAY(close(fd));

    /* We reset. */
    struct linger off = {1, 0};
    fd = tcp(7001);
    SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off));
    SAY(close(fd));

    int server = listener(8310);
    int asked = ask_peer(8310, "reset");
    fd = OPEN(accept(server, 0, 0));
    sleep_ms(200);
    SAY(read(fd, buf, sizeof buf));
    SAY(close(fd));
    close(asked);

    /* Unread data at close is answered with a reset: the peer's next write fails. */
    asked = ask_peer(8310, "ask");
    fd = OPEN(accept(server, 0, 0));
    readable(fd);
    SAY(close(fd));
    readable(asked);
    long n = read_all(asked, buf, sizeof buf);
    NOTE("%.*s", (int)n, buf);
    close(asked);
    close(server);
}
