/* SO_MAX_PACING_RATE of connections: set before and after connect, inherited, lifted. */
#include "t.h"

enum { BYTES = 400000, RATE = 1000000 };

static long ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void say_rate(int fd) {
    unsigned long rate = 0;
    unsigned half = 0;
    socklen_t len = sizeof rate, short_len = sizeof half;
    SAY(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &len));
    SAY(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &half, &short_len));
    /* tcpi_max_pacing_rate */
    uint64_t info[16] = {0};
    socklen_t info_len = sizeof info;
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &info_len);
    NOTE("%lu %u %llu, %u", rate, half, (unsigned long long)info[14], len);
}

/* The peer counts the bytes until the end; 400 KB last 0.4 s at 1 MB/s. */
static void transfer(const char *how, int fd) {
    static char data[BYTES];
    char count[32] = "";
    long begin = ms(), sent = 0, got;
    while (sent < BYTES && (got = write(fd, data + sent, BYTES - sent)) > 0) sent += got;
    shutdown(fd, SHUT_WR);
    read(fd, count, sizeof count - 1);
    long took = ms() - begin;
    NOTE("%s: %ld bytes, %s", how, atol(count), took > 250 ? "paced" : "at once");
    close(fd);
}

static void accepted(void) {
    int server = listener(8390), rate = RATE;
    SAY(setsockopt(server, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate));
    int client = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(client, own_ip(), 8390));
    int fd = accept(server, 0, 0);
    say_rate(fd);
    close(fd), close(client), close(server);
}

int main(void) {
    int rate = RATE, none = -1, fd = tcp(7004);
    say_rate(fd);
    transfer("plain", fd);

    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate));
    SAY(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, 2));
    connect_to(fd, peer_ip(), 7004);
    say_rate(fd);
    transfer("before connect", fd);

    unsigned long as_long = RATE;
    fd = tcp(7004);
    SAY(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &as_long, sizeof as_long));
    say_rate(fd);
    transfer("after connect", fd);

    fd = tcp(7004);
    SAY(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate));
    SAY(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &none, sizeof none));
    say_rate(fd);
    transfer("lifted", fd);
    accepted();
}
