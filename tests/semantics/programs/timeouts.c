/* Waits end when they should. */
#include "t.h"

int main(void) {
    char buf[64];
    int fd = tcp(7001);
    struct timeval t = {0, 100000};
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    struct timeval back = {0};
    socklen_t len = sizeof back;
    SAY(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len));
    NOTE("%ld.%06ld", (long)back.tv_sec, (long)back.tv_usec);
    long start = now_ms();
    SAY(read(fd, buf, 1));
    NOTE("%s", took(start, 100));
    start = now_ms();
    SAY(recv(fd, buf, 4, MSG_WAITALL));
    NOTE("%s", took(start, 100));
    SAY(write(fd, "ab", 2));
    start = now_ms();
    SAY(recv(fd, buf, 4, MSG_WAITALL));
    NOTE("%s", took(start, 100));
    SAY(close(fd));

    fd = tcp(7006);
    int size = 4096;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    SAY(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
    static char block[1 << 20];
    long n;
    while ((n = write(fd, block, sizeof block)) > 0) {}
    NOTE("%s", name_of(errno));
    start = now_ms();
    /* A window probe may have found room for a few bytes. */
    n = write(fd, block, sizeof block);
    NOTE("no room: %d, %s", n < 4096, took(start, 100));
    SAY(close(fd));

    int server = listener(8330);
    SAY(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    start = now_ms();
    SAY(accept(server, 0, 0));
    NOTE("%s", took(start, 100));
    SAY(close(server));

    fd = tcp(7008);
    struct pollfd p = {fd, POLLIN, 0};
    start = now_ms();
    SAY(poll(&p, 1, 2000));
    NOTE("%s", took(start, 300));
    SAY(read(fd, buf, 64));
    SAY(close(fd));

    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    start = now_ms();
    SAY(recv(fd, buf, 1, 0));
    NOTE("%s", took(start, 100));
    t.tv_usec = 1000000;
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    SAY(close(fd));
}
