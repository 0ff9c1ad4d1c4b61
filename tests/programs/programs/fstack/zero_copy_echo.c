/* Echoes without copying what came: it is kept where it lies, a few stretches at a time, and given
 * back from either end in turns. Answers are made in three ways: in buffers by ff_zc_mbuf_write and
 * ff_zc_send, in buffers in place, and as bytes. A line `g` is answered by a child out of a buffer
 * that its parent has filled half, `e` begins an echo. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slipstack.h"

#define PORT 80
/* Together less than a receive buffer: a connection of which all is kept stops. */
#define KEPT 4
#define MOST 15000

static void check(int holds, int line)
{
    if (holds)
        return;
    fprintf(stderr, "line %d: %s\n", line, strerror(errno));
    _exit(1);
}
#define CHECK(what) check(what, __LINE__)

static void send_whole(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = ff_write(fd, bytes, len);
        CHECK(sent > 0);
        bytes += sent;
        len -= (size_t)sent;
    }
}

static void send_buffer(int fd, const char *bytes, int len, int is_in_place)
{
    struct ff_zc_mbuf m;
    int done = 0;
    CHECK(ff_zc_mbuf_get(&m, len) == 0);
    while (is_in_place && done < len) {
        struct iovec place;
        ssize_t room = slipstack_zc_room(&m, &place);
        int part = len - done < 5000 ? len - done : 5000;
        CHECK(room > 0 && room == (ssize_t)place.iov_len);
        part = part < room ? part : (int)room;
        memcpy(place.iov_base, bytes + done, (size_t)part);
        CHECK(slipstack_zc_filled(&m, (size_t)part) == 0);
        done += part;
    }
    while (done < len) {
        int part = len - done < 1440 ? len - done : 1440;
        CHECK(ff_zc_mbuf_write(&m, bytes + done, part) == part);
        done += part;
    }
    CHECK(slipstack_zc_filled(&m, 1) == -1 && errno == EINVAL);
    CHECK(ff_zc_send(fd, m.bsd_mbuf, (size_t)len) == len);
    CHECK(ff_zc_send(fd, m.bsd_mbuf, (size_t)len) == -1 && errno == EINVAL);
}

/* From either end in turns. */
static void give_back(struct ff_zc_mbuf *kept, int *count)
{
    for (; *count > 0; *count -= 1) {
        int at = *count % 2 ? 0 : *count - 1;
        ff_zc_recv_free(&kept[at]);
        CHECK(kept[at].bsd_mbuf == NULL);
        kept[at] = kept[*count - 1];
    }
}

static void echo(int fd)
{
    struct ff_zc_mbuf kept[KEPT], again;
    int count = 0, turn = 0, len;
    char *copy = malloc(MOST);
    void *at;
    for (;; turn++) {
        ssize_t got = ff_zc_recv(fd, &kept[count], MOST);
        CHECK(got >= 0);
        if (got == 0)
            break;
        again = kept[count++];
        CHECK(again.len == got);
        while ((len = ff_zc_mbuf_segment(&again, &at, &len)) > 0) {
            if (turn % 3 < 2)
                send_buffer(fd, at, len, turn % 3);
            else
                send_whole(fd, at, (size_t)len);
        }
        CHECK(len == 0);
        again = kept[count - 1];
        CHECK(ff_zc_mbuf_read(&again, copy, MOST) == got);
        CHECK(ff_zc_mbuf_segment(&again, &at, &len) == 0);
        if (count == KEPT)
            give_back(kept, &count);
    }
    give_back(kept, &count);
    free(copy);
}

/* A child sends what its parent has put into a buffer, which goes on as its own in the parent. */
static void greet(int fd)
{
    static char text[8192];
    struct ff_zc_mbuf m;
    memset(text, 'p', sizeof text);
    CHECK(ff_zc_mbuf_get(&m, 2 * sizeof text) == 0);
    CHECK(ff_zc_mbuf_write(&m, text, sizeof text) == sizeof text);
    pid_t child = fork();
    if (child == 0) {
        memset(text, 'c', sizeof text);
        CHECK(ff_zc_mbuf_write(&m, text, sizeof text) == sizeof text);
        CHECK(ff_write(fd, m.bsd_mbuf, 2 * sizeof text) == 2 * sizeof text);
        ff_close(fd);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(ff_zc_mbuf_write(&m, text, sizeof text) == sizeof text && slipstack_zc_free(&m) == 0);
}

int main(int argc, char *argv[])
{
    struct sockaddr_in any;
    CHECK(ff_init(argc, argv) == 0);
    memset(&any, 0, sizeof any);
    any.sin_family = AF_INET;
    any.sin_port = htons(PORT);
    int listener = ff_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(ff_bind(listener, (struct linux_sockaddr *)&any, sizeof any) == 0);
    CHECK(ff_listen(listener, 16) == 0);
    for (;;) {
        int fd = ff_accept(listener, NULL, NULL);
        char order = 0;
        CHECK(fd >= 0);
        if (ff_read(fd, &order, 1) == 1 && order == 'e')
            echo(fd);
        else if (order == 'g')
            greet(fd);
        ff_close(fd);
    }
}
