/* MSG_MORE on a connection: what is held back leaves at once, in one segment, with a send without
 * it that fills no segment. */
#include "t.h"

enum { IN_TIME_MS = 150, FILLS = 1500 };

/* How many segments with data have left: TCP_INFO's tcpi_data_segs_out. */
static int segments(int fd) {
    struct {
        unsigned char bytes[160];
    } info = {0};
    socklen_t len = sizeof info;
    unsigned count = 0;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) || len < 160) return -1;
    memcpy(&count, info.bytes + 156, sizeof count);
    return count;
}

static char data[4096];

static void hold(const char *what, int fd, int before) {
    sleep_ms(30);
    NOTE("%s: %d segments, %s", what, segments(fd) - before,
         recv(fd, data, sizeof data, MSG_DONTWAIT) < 0 ? name_of(errno) : "an answer");
}

/* All of it comes back, long before what is held back alone would leave (200 ms). */
static void comes(int fd, int before, int len, long since) {
    long got = read_all(fd, data, len), ms = now_ms() - since;
    int count = segments(fd) - before;
    /* An ACK may let the rest of a first part go that has filled a segment. */
    NOTE("%ld bytes in %s segments, %s", got,
         count == 1 ? "1" : count == 2 || count == 3 && len == FILLS + 10 ? "a few" : "many",
         ms < IN_TIME_MS ? "in time" : "late");
}

static void by_send(int fd, int first, int second) {
    int before = segments(fd);
    NOTE("%d and then %d", first, second);
    SAY(send(fd, data, first, MSG_MORE));
    if (first < FILLS) hold("held back", fd, before);
    long since = now_ms();
    SAY(send(fd, data, second, 0));
    comes(fd, before, first + second, since);
}

static void by_others(int fd) {
    int before = segments(fd);
    struct iovec parts[] = {{"one", 3}, {"two", 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    NOTE("sendmsg, then write");
    SAY(sendmsg(fd, &message, MSG_MORE));
    hold("held back", fd, before);
    long since = now_ms();
    SAY(write(fd, "three", 5));
    comes(fd, before, 11, since);

    before = segments(fd);
    NOTE("three held back, then writev");
    for (int i = 0; i < 3; i++) SAY(send(fd, "abc" + i, 1, MSG_MORE));
    hold("held back", fd, before);
    since = now_ms();
    SAY(writev(fd, parts, 2));
    comes(fd, before, 9, since);

    before = segments(fd);
    FILE *file = tmpfile();
    fputs("of a file", file), fflush(file);
    off_t at = 0;
    NOTE("a header, then sendfile");
    SAY(send(fd, "header", 6, MSG_MORE));
    hold("held back", fd, before);
    since = now_ms();
    SAY(sendfile(fd, fileno(file), &at, 9));
    comes(fd, before, 15, since);
    fclose(file);
}

int main(void) {
    for (int is_nodelay = 0; is_nodelay < 2; is_nodelay++) {
        int fd = tcp(7001);
        NOTE("TCP_NODELAY %d", is_nodelay);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &is_nodelay, sizeof is_nodelay);
        by_send(fd, 10, 20);
        by_send(fd, 700, 1);
        by_send(fd, 1, 700);
        by_send(fd, FILLS, 10);
        by_send(fd, 1000, 1000);
        by_others(fd);
        close(fd);
    }
}
