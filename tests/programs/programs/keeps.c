/* Takes what comes on port 9200 segment by segment without copying it, keeps up to WINDOW
 * segments and gives them back in an order of chance; each must be as it was. The first byte of
 * a connection says which: 'r' reads all and answers with its sum, 'k' keeps all until the peer
 * has closed port 9201's connection, 'f' keeps while a child echoes. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slipstack.h"

#define WINDOW 16
#define PIECE_MAX 30000

struct kept {
    struct slipstack_segment segment;
    uint64_t sum;
};

static uint64_t added(uint64_t sum, const struct slipstack_segment *segment)
{
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < segment->pieces[i].iov_len; at++)
            sum = (sum ^ ((const uint8_t *)segment->pieces[i].iov_base)[at]) * 1099511628211u;
    return sum;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static ssize_t take(int fd, size_t most, struct slipstack_segment *segment)
{
    struct pollfd bytes = {fd, POLLIN, 0};
    ssize_t got;
    while ((got = slipstack_recv_take(fd, most, segment)) < 0 && errno == EAGAIN)
        ff_poll(&bytes, 1, -1);
    return got;
}

static void give(int fd, struct kept *one)
{
    if (added(0, &one->segment) != one->sum)
        fail("a kept segment has changed");
    if (slipstack_recv_give(fd, &one->segment) < 0)
        fail("slipstack_recv_give");
    if (slipstack_recv_give(fd, &one->segment) == 0 || errno != EINVAL)
        fail("given back twice");
}

static void read_all(int fd)
{
    struct kept kept[WINDOW];
    uint64_t sum = 0;
    int count = 0;
    char text[64];
    ssize_t got;
    do {
        size_t most = 1 + (size_t)rand() % PIECE_MAX;
        /* With some kept there may be no room for more: then one is given back. */
        got = count == 0 ? take(fd, most, &kept[0].segment)
                         : slipstack_recv_take(fd, most, &kept[count].segment);
        if (got < 0 && errno != EAGAIN)
            fail("slipstack_recv_take");
        if (got > 0) {
            sum = added(sum, &kept[count].segment);
            kept[count].sum = added(0, &kept[count].segment);
            count++;
        }
        while (count == WINDOW || (got <= 0 && count > 0)) {
            int which = rand() % count;
            give(fd, &kept[which]);
            kept[which] = kept[--count];
            if (got < 0)
                break;
        }
    } while (got != 0);
    ff_write(fd, text, (size_t)snprintf(text, sizeof text, "%016llx", (unsigned long long)sum));
}

static void keep_all(int fd, int other)
{
    struct slipstack_segment segments[1024];
    size_t total = 0;
    int count = 0;
    char text[64];
    ssize_t got;
    /* Until no more comes for a while: the buffer is full of what is kept. */
    struct pollfd bytes = {fd, POLLIN, 0};
    while (ff_poll(&bytes, 1, 1000) == 1 &&
           (got = slipstack_recv_take(fd, 1 << 20, &segments[count])) > 0) {
        total += (size_t)got;
        count++;
    }
    ff_write(fd, text, (size_t)snprintf(text, sizeof text, "%zu\n", total));
    /* Another connection goes on meanwhile. */
    if (ff_read(other, text, 1) != 1 || ff_write(other, text, 1) != 1 ||
        ff_read(other, text, 1) != 0)
        fail("the other connection");
    while (count > 0)
        if (slipstack_recv_give(fd, &segments[--count]) < 0)
            fail("slipstack_recv_give");
    while ((got = take(fd, 1 << 20, segments)) > 0) {
        total += (size_t)got;
        slipstack_recv_give(fd, segments);
    }
    ff_write(fd, text, (size_t)snprintf(text, sizeof text, "%zu\n", total));
}

/* A child answers so often that it would get a connection of which nothing was kept. */
static void keep_beyond_a_child(int fd)
{
    struct kept kept;
    char byte;
    if (take(fd, 1, &kept.segment) != 1)
        fail("slipstack_recv_take");
    kept.sum = added(0, &kept.segment);
    pid_t child = fork();
    if (child == 0) {
        while (ff_read(fd, &byte, 1) == 1 && byte != '.')
            ff_write(fd, &byte, 1);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    give(fd, &kept);
    ff_write(fd, "kept", 4);
}

static int listener_on(int port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = ff_socket(AF_INET, SOCK_STREAM, 0);
    if (ff_bind(fd, (struct linux_sockaddr *)&any, sizeof any) < 0 || ff_listen(fd, 16) < 0)
        fail("listen");
    return fd;
}

int main(int argc, char *argv[])
{
    ff_init(argc, argv);
    int listener = listener_on(9200), others = listener_on(9201);
    for (;;) {
        struct slipstack_segment first;
        int fd = ff_accept(listener, NULL, NULL);
        if (take(fd, 1, &first) == 1) {
            char what = *(const char *)first.pieces[0].iov_base;
            slipstack_recv_give(fd, &first);
            if (what == 'r')
                read_all(fd);
            else if (what == 'k') {
                int other = ff_accept(others, NULL, NULL);
                keep_all(fd, other);
                ff_close(other);
            }
            else if (what == 'f')
                keep_beyond_a_child(fd);
            /* Anything else is closed with a segment out. */
            else
                take(fd, 1, &first);
        }
        ff_close(fd);
    }
}
