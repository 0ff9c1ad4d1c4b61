/* How many connections wait: what listen(2) makes of its number. */
#include "t.h"

static void told(int server) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    SAY(getsockopt(server, IPPROTO_TCP, TCP_INFO, &info, &len));
    NOTE("state %d, %u wait, room %u", info.tcpi_state, info.tcpi_unacked, info.tcpi_sacked);
}

/* Connections that are there before any is accepted. */
static void waiting(int server, int port, int count) {
    int asked[8];
    for (int n = 0; n < count; n++) asked[n] = ask_peer(port, "hello");
    sleep_ms(400);
    told(server);
    nonblocking(server);
    int got = 0;
    for (int fd; (fd = accept(server, NULL, NULL)) >= 0; got++) close(fd);
    NOTE("%d of %d wait", got, count);
    for (int n = 0; n < count; n++) close(asked[n]);
}

static int listening(int port, int backlog) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bind_to(fd, own_ip(), port);
    SAY(listen(fd, backlog));
    /* It is waited for once. */
    struct pollfd p = {fd, POLLIN, 0};
    poll(&p, 1, 0);
    return fd;
}

int main(void) {
    int backlogs[] = {-1, 0x7fffffff, 2};
    for (int n = 0; n < 3; n++) {
        int fd = listening(8410 + n, backlogs[n]);
        told(fd);
        waiting(fd, 8410 + n, n == 2 ? 3 : 6);
        close(fd);
    }
    /* A second call is another number. */
    int fd = listening(8420, 0);
    SAY(listen(fd, -1));
    told(fd);
    waiting(fd, 8420, 6);
    close(fd);
}
