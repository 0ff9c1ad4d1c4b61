/* Bytes through one connection, with and without copies, and how many bytes were copied in this
 * process: memcpy and memmove are its own, also for the library, and count what is not a header.
 * scripts/bytes runs it.
 *
 *     bytes serve PORT kernel
 *     bytes serve PORT stack OPTIONS…
 *     bytes MANNER ADDRESS PORT SIZE TOTAL OPTIONS…
 *
 * Manners: write (made in a buffer, ff_write), chain (made in a buffer, ff_zc_mbuf_write), fill
 * (made in place in a buffer of ff_zc_mbuf_get), room (made in the send ring), bound (made in a
 * buffer, while what lies in the send ring is sent: ff_write if its copy cost nothing), read
 * (ff_read), look (read where it lies), keep (ff_zc_recv, given back three calls later). Prints
 * nanoseconds of the clock and of the processor, and the bytes that were copied. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "slipstack.h"

#define HEADERS_MAX 48
#define LARGE (1 << 20)
/* Together less than a receive buffer: a connection of which all is kept stops. */
#define KEPT 3
#define KEPT_MOST 16384

static size_t copied;
static void *(*real_memcpy)(void *, const void *, size_t),
    *(*real_memmove)(void *, const void *, size_t);

static void *early(char *to, const char *from, size_t len)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t len)
{
    if (!real_memcpy)
        return early((char *)to, (const char *)from, len), to;
    copied += len > HEADERS_MAX ? len : 0;
    return real_memcpy(to, from, len);
}

void *memmove(void *to, const void *from, size_t len)
{
    if (!real_memmove)
        real_memmove = (void *(*)(void *, const void *, size_t))dlsym(RTLD_NEXT, "memmove");
    copied += len > HEADERS_MAX ? len : 0;
    return real_memmove(to, from, len);
}

static char buffer[LARGE] __attribute__((aligned(64)));
static size_t made, sum;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void make(void *at, size_t len)
{
    memset(at, (int)(made++ & 0x7f), len);
}

static void look_at(const void *at, size_t len)
{
    const unsigned char *bytes = (const unsigned char *)at;
    size_t word;
    for (; len >= sizeof word; bytes += sizeof word, len -= sizeof word)
        sum += *(const size_t *)bytes;
    while (len--)
        sum += *bytes++;
}

static void wait_for(int fd, short what)
{
    struct pollfd one = {fd, what, 0};
    ff_poll(&one, 1, -1);
}

static void put(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = ff_write(fd, bytes, len);
        if (sent < 0)
            fail("ff_write");
        bytes += sent;
        len -= (size_t)sent;
    }
}

static void put_in_room(int fd, size_t len, int is_made)
{
    while (len > 0) {
        struct iovec room[2];
        ssize_t got = slipstack_send_room(fd, len, room);
        if (got < 0 && errno == EAGAIN) {
            wait_for(fd, POLLOUT);
            continue;
        }
        if (got < 0)
            fail("slipstack_send_room");
        if (!is_made) {
            make(room[0].iov_base, room[0].iov_len);
            make(room[1].iov_base, room[1].iov_len);
        }
        if (slipstack_send_done(fd, (size_t)got) < 0)
            fail("slipstack_send_done");
        len -= (size_t)got;
    }
}

static void put_chain(int fd, size_t len, int is_in_place)
{
    struct ff_zc_mbuf m;
    struct iovec room;
    if (ff_zc_mbuf_get(&m, (int)len) < 0)
        fail("ff_zc_mbuf_get");
    if (is_in_place) {
        if (slipstack_zc_room(&m, &room) != (ssize_t)len)
            fail("slipstack_zc_room");
        make(room.iov_base, len);
        slipstack_zc_filled(&m, len);
    } else {
        make(buffer, len);
        if (ff_zc_mbuf_write(&m, buffer, (int)len) != (int)len)
            fail("ff_zc_mbuf_write");
    }
    for (size_t sent = 0; sent < len;) {
        ssize_t got = ff_write(fd, m.bsd_mbuf, len - sent);
        if (got < 0)
            fail("ff_write");
        sent += (size_t)got;
    }
}

static size_t take_and_keep(int fd, size_t len)
{
    static struct ff_zc_mbuf kept[KEPT];
    static unsigned turn;
    struct ff_zc_mbuf *m = &kept[turn++ % KEPT];
    void *at;
    int part;
    ff_zc_recv_free(m);
    ssize_t got = ff_zc_recv(fd, m, len < KEPT_MOST ? len : KEPT_MOST);
    if (got <= 0)
        fail("ff_zc_recv");
    while (ff_zc_mbuf_segment(m, &at, &part) > 0)
        look_at(at, (size_t)part);
    return (size_t)got;
}

static size_t take_in_place(int fd, size_t len)
{
    struct iovec pieces[2];
    ssize_t got = slipstack_recv_look(fd, pieces);
    if (got < 0 && errno == EAGAIN) {
        wait_for(fd, POLLIN);
        return 0;
    }
    if (got <= 0)
        fail("slipstack_recv_look");
    size_t first = pieces[0].iov_len < len ? pieces[0].iov_len : len;
    size_t second = pieces[1].iov_len < len - first ? pieces[1].iov_len : len - first;
    look_at(pieces[0].iov_base, first);
    look_at(pieces[1].iov_base, second);
    return slipstack_recv_done(fd, pieces, first + second) == 0 ? first + second : 0;
}

static size_t take(int fd, size_t len)
{
    ssize_t got = ff_read(fd, buffer, len);
    if (got <= 0)
        fail("ff_read");
    look_at(buffer, (size_t)got);
    return (size_t)got;
}

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void measure(int fd, const char *manner, size_t size, size_t total)
{
    int is_sent = strchr("wrcfb", manner[0]) != NULL && strcmp(manner, "read") != 0;
    char order[64], end;
    int len = snprintf(order, sizeof order, "%c%zu\n", is_sent ? 't' : 's', total);
    size_t done = 0;
    put(fd, order, (size_t)len);
    copied = 0;
    double clock = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    while (done < total) {
        size_t part = total - done < size ? total - done : size;
        if (!is_sent)
            done += manner[0] == 'l'   ? take_in_place(fd, part)
                    : manner[0] == 'k' ? take_and_keep(fd, part)
                                       : take(fd, part);
        else if (manner[0] == 'w') {
            make(buffer, part);
            put(fd, buffer, part);
        } else if (manner[0] == 'r' || manner[0] == 'b') {
            if (manner[0] == 'b')
                make(buffer, part);
            put_in_room(fd, part, manner[0] == 'b');
        } else
            put_chain(fd, part, manner[0] == 'f');
        done += is_sent ? part : 0;
    }
    if (is_sent && ff_read(fd, &end, 1) != 1)
        fail("the end");
    printf("%.0f %.0f %zu\n", now(CLOCK_MONOTONIC) - clock, now(CLOCK_PROCESS_CPUTIME_ID) - cpu,
           copied);
}

/* The other end: takes or gives as many bytes as the first line says, with few calls. */
static void serve(int fd, ssize_t (*get)(int, void *, size_t),
                  ssize_t (*give)(int, const void *, size_t))
{
    char line[64] = "", *at = line;
    while (at < line + sizeof line - 1 && get(fd, at, 1) == 1 && *at != '\n')
        at++;
    size_t left = strtoull(line + 1, NULL, 10);
    while (left > 0) {
        size_t part = left < LARGE ? left : LARGE;
        ssize_t got = line[0] == 't' ? get(fd, buffer, part) : give(fd, buffer, part);
        if (got <= 0)
            return;
        left -= (size_t)got;
    }
    if (line[0] == 't' && give(fd, "e", 1) != 1)
        return;
    get(fd, line, 1);
}

static int listen_on(int is_kernel, struct sockaddr_in *any)
{
    int on = 1,
        fd = is_kernel ? socket(AF_INET, SOCK_STREAM, 0) : ff_socket(AF_INET, SOCK_STREAM, 0);
    if (is_kernel)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int failed = is_kernel
                     ? bind(fd, (struct sockaddr *)any, sizeof *any) || listen(fd, 16)
                     : ff_bind(fd, (struct linux_sockaddr *)any, sizeof *any) || ff_listen(fd, 16);
    if (failed)
        fail("listen");
    return fd;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in to;
    real_memmove = (void *(*)(void *, const void *, size_t))dlsym(RTLD_NEXT, "memmove");
    real_memcpy = (void *(*)(void *, const void *, size_t))dlsym(RTLD_NEXT, "memcpy");
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    if (argc >= 4 && strcmp(argv[1], "serve") == 0) {
        int is_kernel = strcmp(argv[3], "kernel") == 0;
        if (!is_kernel)
            ff_init(argc, argv);
        to.sin_port = htons((uint16_t)atoi(argv[2]));
        int listener = listen_on(is_kernel, &to);
        for (;;) {
            int fd = is_kernel ? accept(listener, NULL, NULL) : ff_accept(listener, NULL, NULL);
            serve(fd, is_kernel ? read : ff_read, is_kernel ? write : ff_write);
            is_kernel ? close(fd) : ff_close(fd);
        }
    }
    if (argc < 6 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1)
        return 64;
    ff_init(argc, argv);
    to.sin_port = htons((uint16_t)atoi(argv[3]));
    int fd = ff_socket(AF_INET, SOCK_STREAM, 0);
    if (ff_connect(fd, (struct linux_sockaddr *)&to, sizeof to) < 0)
        fail("ff_connect");
    measure(fd, argv[1], strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    ff_close(fd);
    return (int)(sum & 0);
}
