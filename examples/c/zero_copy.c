/* A server that sends as many bytes as a line asks for, without copying: they are made in the
 * connection's send ring. A line with a `z` is answered by F-Stack's buffers, one with a `w` by
 * ff_write.
 *
 *     zero_copy --ip 10.0.0.5/24 --if eth1
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slipstack.h"

#define PORT 9000
#define STRIDE 1440

static volatile sig_atomic_t is_over;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void on_signal(int signal)
{
    (void)signal;
    is_over = 1;
}

static void make(char *at, size_t len, size_t *next)
{
    for (size_t i = 0; i < len; i++)
        at[i] = (char)('a' + (*next)++ % 26);
}

static void in_ring(int fd, size_t len)
{
    size_t next = 0;
    while (next < len) {
        struct iovec room[2];
        struct pollfd space = {fd, POLLOUT, 0};
        ssize_t got = slipstack_send_room(fd, len - next, room);
        if (got < 0 && errno == EAGAIN) {
            ff_poll(&space, 1, -1);
            continue;
        }
        if (got < 0)
            return;
        make((char *)room[0].iov_base, room[0].iov_len, &next);
        make((char *)room[1].iov_base, room[1].iov_len, &next);
        slipstack_send_done(fd, (size_t)got);
    }
}

/* A buffer is filled piece by piece and handed over; the rest follows with the next call. */
static void by_buffer(int fd, size_t len)
{
    char piece[STRIDE];
    struct ff_zc_mbuf m;
    size_t next = 0, sent = 0;
    if (ff_zc_mbuf_get(&m, (int)len) < 0)
        fail("ff_zc_mbuf_get");
    while (next < len) {
        size_t part = len - next < STRIDE ? len - next : STRIDE;
        make(piece, part, &next);
        if (ff_zc_mbuf_write(&m, piece, (int)part) != (int)part)
            fail("ff_zc_mbuf_write");
    }
    while (sent < len) {
        ssize_t got = ff_write(fd, m.bsd_mbuf, len - sent);
        if (got < 0)
            break;
        sent += (size_t)got;
    }
    /* The stack owns the buffer now, so a second send is refused. */
    if (ff_write(fd, m.bsd_mbuf, len) != -1 || errno != EINVAL)
        exit(2);
}

static void by_write(int fd, size_t len)
{
    char *bytes = (char *)malloc(len);
    size_t next = 0, sent = 0;
    make(bytes, len, &next);
    while (sent < len) {
        ssize_t got = ff_write(fd, bytes + sent, len - sent);
        if (got < 0)
            break;
        sent += (size_t)got;
    }
    free(bytes);
}

/* The request is read in place. */
static void serve(int fd)
{
    struct iovec pieces[2];
    struct pollfd bytes = {fd, POLLIN, 0};
    ff_poll(&bytes, 1, -1);
    ssize_t got = slipstack_recv_look(fd, pieces);
    if (got > 0) {
        char line[32] = "";
        memcpy(line, pieces[0].iov_base, pieces[0].iov_len < 31 ? pieces[0].iov_len : 31);
        if (slipstack_recv_done(fd, pieces, (size_t)got) == 0) {
            size_t len = (size_t)strtoul(line + 1, NULL, 10);
            if (line[0] == 'z')
                by_buffer(fd, len);
            else if (line[0] == 'w')
                by_write(fd, len);
            else
                in_ring(fd, len);
        }
    }
    ff_close(fd);
}

int main(int argc, char *argv[])
{
    struct sockaddr_in address;
    ff_init(argc, argv);
    int listener = ff_socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(PORT);
    if (ff_bind(listener, (struct linux_sockaddr *)&address, sizeof address) < 0 ||
        ff_listen(listener, 16) < 0)
        fail("listen");
    signal(SIGTERM, on_signal);
    while (!is_over) {
        struct pollfd arrival = {listener, POLLIN, 0};
        if (ff_poll(&arrival, 1, 200) == 1)
            serve(ff_accept(listener, NULL, NULL));
    }
    return 0;
}
