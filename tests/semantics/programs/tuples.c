/* Two sockets on one local port, and who may have which peer. */
#include "t.h"

static int bound(const char *ip, int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    SAY(bind_to(fd, ip, port));
    return fd;
}

static void both(const char *ip, int port) {
    int first = bound(ip, port), second = bound(ip, port);
    SAY(connect_to(first, peer_ip(), 7001));
    SAY(connect_to(second, peer_ip(), 7001));
    SAY(connect_to(second, peer_ip(), 7001));
    SAY(write(first, "abcdef", 6));
    char text[8] = "";
    sleep_ms(60);
    SAY(read(first, text, sizeof text));
    SAY(close(second));
    int third = bound(ip, port);
    SAY(close(first));
    sleep_ms(60);
    /* TIME-WAIT, or gone: the peer has closed too. */
    SAY(connect_to(third, peer_ip(), 7001) == 0 || errno == EADDRNOTAVAIL);
    SAY(close(third));
}

/* One that waits in another process has it. */
static void apart_from(const char *ip, int port) {
    int first = bound(ip, port);
    SAY(connect_to(first, peer_ip(), 7001));
    fflush(stdout);
    if (fork() == 0) {
        int second = bound(ip, port);
        SAY(connect_to(second, peer_ip(), 7001));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    SAY(close(first));
}

int main(void) {
    both(own_ip(), 8601);
    both("0.0.0.0", 8602);
    apart_from(own_ip(), 8603);
    apart_from("0.0.0.0", 8604);
}
