/* Round trips of a short message on one connection, by blocking calls of the C library, or of libc
 * with the headers of plain/. scripts/library runs it.
 *
 *     round_trip serve PORT OPTIONS…
 *     round_trip ask ADDRESS PORT BYTES ROUNDS OPTIONS…
 *
 * Prints the median and the 99th percentile in nanoseconds. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ff_api.h"

enum { BYTES_MAX = 4096, WARM = 1000 };

static char message[BYTES_MAX];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int made(const char *address, const char *port, struct sockaddr_in *to)
{
    int on = 1;
    int fd = ff_socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        fail("socket");
    ff_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    memset(to, 0, sizeof *to);
    to->sin_family = AF_INET;
    to->sin_port = htons((uint16_t)atoi(port));
    to->sin_addr.s_addr = inet_addr(address);
    return fd;
}

static void serve(const char *port)
{
    struct sockaddr_in address;
    int listener = made("0.0.0.0", port, &address);
    if (ff_bind(listener, (struct linux_sockaddr *)&address, sizeof address) < 0)
        fail("bind");
    if (ff_listen(listener, 16) < 0)
        fail("listen");
    for (;;) {
        int fd = ff_accept(listener, NULL, NULL);
        ssize_t got = 0;
        if (fd < 0)
            fail("accept");
        while ((got = ff_read(fd, message, sizeof message)) > 0)
            if (ff_write(fd, message, (size_t)got) != got)
                break;
        ff_close(fd);
    }
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int by_size(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void ask(const char *host, const char *port, size_t bytes, size_t rounds)
{
    struct sockaddr_in address;
    int fd = made(host, port, &address);
    uint64_t *times = (uint64_t *)calloc(rounds + 1, sizeof *times);
    if (!times || bytes == 0 || bytes > sizeof message)
        fail("BYTES and ROUNDS");
    if (ff_connect(fd, (struct linux_sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    for (size_t round = 0; round < WARM + rounds; round++) {
        uint64_t begin = now();
        if (ff_write(fd, message, bytes) != (ssize_t)bytes)
            fail("write");
        for (size_t left = bytes; left > 0;) {
            ssize_t got = ff_read(fd, message, left);
            if (got <= 0)
                fail("read");
            left -= (size_t)got;
        }
        if (round >= WARM)
            times[round - WARM] = now() - begin;
    }
    qsort(times, rounds, sizeof *times, by_size);
    printf("%lu %lu\n", (unsigned long)times[rounds / 2], (unsigned long)times[rounds * 99 / 100]);
}

int main(int argc, char *argv[])
{
    int is_server = argc > 2 && strcmp(argv[1], "serve") == 0, words = is_server ? 3 : 6;
    if (argc < words) {
        fprintf(stderr, "round_trip serve PORT … | ask ADDRESS PORT BYTES ROUNDS …\n");
        return 2;
    }
    ff_init(argc - words + 1, argv + words - 1);
    if (is_server)
        serve(argv[2]);
    else
        ask(argv[2], argv[3], strtoul(argv[4], NULL, 10), strtoul(argv[5], NULL, 10));
    return 0;
}
