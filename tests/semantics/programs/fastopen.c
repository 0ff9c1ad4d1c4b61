/* Opening with data (MSG_FASTOPEN, TCP_FASTOPEN_CONNECT): when calls return, and their errors. */
#include "t.h"

enum { ECHO = 7013, REFUSED = 7998 };

static ssize_t open_to(int fd, const char *ip, int port, const void *data, size_t len) {
    struct sockaddr_in addr = at(ip, port);
    return sendto(fd, data, len, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&addr, sizeof addr);
}

/* The state of the connection as a call has left it. */
static int state(int fd) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    return info.tcpi_state;
}

static int writable(int fd, int ms) {
    struct pollfd p = {fd, POLLOUT, 0};
    poll(&p, 1, ms);
    return p.revents;
}

static int deferred(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on);
    return fd;
}

int main(void) {
    static char text[100000], back[sizeof text];
    for (size_t i = 0; i < sizeof text; i++) text[i] = i % 251;

    NOTE("the first asks for the cookie");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(open_to(fd, peer_ip(), ECHO, "hello", 5));
    SAY(state(fd));
    SAY(read_all(fd, back, 5));
    SAY(open_to(fd, peer_ip(), ECHO, "hello", 5));
    close(fd);

    NOTE("the others have it: the call waits for the SYN-ACK");
    for (int i = 0; i < 20; i++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        long since = now_ms();
        if (open_to(fd, peer_ip(), ECHO, "hello", 5) != 5) NOTE("not sent: %s", name_of(errno));
        if (state(fd) != 1) NOTE("%d: state %d", i, state(fd));
        if (strcmp(took(since, 0), "in time")) NOTE("late");
        if (read_all(fd, back, 5) != 5 || memcmp(back, "hello", 5)) NOTE("no echo");
        close(fd);
    }
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(open_to(fd, peer_ip(), ECHO, text, sizeof text));
    SAY(state(fd));
    SAY(read_all(fd, back, sizeof back));
    SAY(memcmp(text, back, sizeof text));
    close(fd);

    NOTE("refused");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(open_to(fd, peer_ip(), REFUSED, "hello", 5));
    SAY(so_error(fd));
    SAY(open_to(fd, peer_ip(), ECHO, "hello", 5));
    SAY(read_all(fd, back, 5));
    close(fd);

    NOTE("refused, and again without waiting");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(open_to(fd, peer_ip(), REFUSED, "hello", 5));
    struct timeval limit = {0, 300000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    struct sockaddr_in nobody = at(getenv("NOBODY_IP"), ECHO);
    int flags = MSG_FASTOPEN | MSG_NOSIGNAL | MSG_DONTWAIT;
    long since = now_ms();
    SAY(sendto(fd, "hello", 5, flags, (void *)&nobody, sizeof nobody));
    NOTE("%s", took(since, 0));
    close(fd);

    NOTE("refused without waiting");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(open_to(fd, peer_ip(), REFUSED, "hello", 5));
    SAY((writable(fd, 1000) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
    SAY(so_error(fd) == ECONNREFUSED);
    close(fd);

    NOTE("without waiting");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(open_to(fd, peer_ip(), ECHO, "hello", 5));
    SAY(writable(fd, 1000));
    SAY(state(fd));
    SAY(write(fd, "there", 5));
    readable(fd), sleep_ms(50);
    SAY(read_all(fd, back, 10));
    close(fd);

    NOTE("nobody, for 300 ms");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    SAY(open_to(fd, getenv("NOBODY_IP"), ECHO, "hello", 5));
    SAY(open_to(fd, getenv("NOBODY_IP"), ECHO, "hello", 5));
    close(fd);

    NOTE("other addresses");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    SAY(sendto(fd, "hello", 5, MSG_FASTOPEN, &none, sizeof none));
    SAY(send(fd, "hello", 5, MSG_FASTOPEN | MSG_NOSIGNAL));
    SAY(send(fd, "hello", 5, MSG_NOSIGNAL));
    close(fd);

    NOTE("a connect that waits for data");
    fd = deferred();
    SAY(connect_to(fd, peer_ip(), ECHO));
    SAY(writable(fd, 0));
    SAY(write(fd, "hello", 5));
    SAY(state(fd));
    SAY(read_all(fd, back, 5));
    close(fd);
    fd = deferred();
    SAY(connect_to(fd, peer_ip(), REFUSED));
    SAY(send(fd, "hello", 5, MSG_NOSIGNAL));
    close(fd);
    fd = deferred();
    nonblocking(fd);
    SAY(connect_to(fd, peer_ip(), ECHO));
    SAY(write(fd, "hello", 5));
    SAY(writable(fd, 1000));
    SAY(state(fd));
    close(fd);

    NOTE("a file");
    fd = deferred();
    FILE *file = tmpfile();
    fwrite(text, 1, 5000, file), fflush(file);
    off_t from = 0;
    SAY(connect_to(fd, peer_ip(), ECHO));
    SAY(sendfile(fd, fileno(file), &from, 5000));
    SAY(state(fd));
    SAY(read_all(fd, back, 5000));
    SAY(memcmp(text, back, 5000));
    close(fd);
}
