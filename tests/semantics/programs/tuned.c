/* How large the buffers of a connection are said to be: they grow with the traffic, unless the
 * program has set them. */
#include "t.h"

#define TOTAL (60L << 20)

static int size(int fd, int name) {
    int bytes = -1;
    socklen_t len = sizeof bytes;
    getsockopt(fd, SOL_SOCKET, name, &bytes, &len);
    return bytes;
}

/* A size by its magnitude: what tuning makes of it depends on the path and on chance. */
static const char *about(int bytes) {
    static char text[2][32];
    static int turn;
    char *at = text[turn++ & 1];
    if (bytes == 16384 || bytes == 131072) snprintf(at, 32, "%d", bytes);
    else if (bytes > 50000 && bytes < 100000) return "some segments";
    else if (bytes > 500000 && bytes < 35000000) return "grown";
    else snprintf(at, 32, "%d", bytes);
    return at;
}

static void say(const char *when, int fd) {
    NOTE("%s: sends with %s, receives with %s", when, about(size(fd, SO_SNDBUF)),
         about(size(fd, SO_RCVBUF)));
}

static void say_exactly(const char *when, int fd) {
    NOTE("%s: %d and %d", when, size(fd, SO_SNDBUF), size(fd, SO_RCVBUF));
}

static char data[1 << 16];

static void put(int fd) {
    for (long sent = 0; sent < TOTAL;) {
        ssize_t n = write(fd, data, sizeof data);
        if (n <= 0) break;
        sent += n;
    }
}

static void set(int fd, int name, int bytes) {
    SAY(setsockopt(fd, SOL_SOCKET, name, &bytes, sizeof bytes));
}

static void connecting(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("fresh", fd);
    SAY(connect_to(fd, own_ip(), 7199));
    say("refused", fd);
    SAY(connect_to(fd, peer_ip(), 7001));
    say("connected", fd);
    SAY(write(fd, "x", 1));
    SAY(read_all(fd, data, 1));
    say("a byte there and back", fd);
    SAY(shutdown(fd, SHUT_RDWR));
    sleep_ms(50);
    say("shut down", fd);
    SAY(close(fd));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    nonblocking(fd);
    SAY(connect_to(fd, "10.91.7.77", 7001));
    say("on its way", fd);
    SAY(close(fd));
}

static void growing(void) {
    int out = tcp(7004), in = tcp(7012), dup_of_in = dup(in);
    put(out);
    say("60 MiB out", out);
    SAY(read_all(in, data, 10));
    while (read(in, data, sizeof data) > 0) {}
    say("60 MiB in", in);
    say("its duplicate", dup_of_in);
    close(dup_of_in);
    SAY(close(out));
    SAY(close(in));
}

static void setting(void) {
    int before = socket(AF_INET, SOCK_STREAM, 0);
    set(before, SO_SNDBUF, 50000);
    set(before, SO_RCVBUF, 60000);
    SAY(connect_to(before, peer_ip(), 7004));
    say_exactly("set before connect", before);
    put(before);
    say_exactly("after 60 MiB", before);
    SAY(close(before));
    int after = tcp(7012);
    set(after, SO_RCVBUF, 300000);
    say("one of them set", after);
    NOTE("exactly %d", size(after, SO_RCVBUF));
    while (read(after, data, sizeof data) > 0) {}
    say("after 60 MiB", after);
    NOTE("exactly %d", size(after, SO_RCVBUF));
    SAY(close(after));
    int forced = tcp(7001);
    set(forced, SO_SNDBUFFORCE, 1 << 20);
    set(forced, SO_RCVBUFFORCE, 2 << 20);
    say_exactly("forced", forced);
    SAY(close(forced));
}

static void accepting(int port, int is_set) {
    int from = listener(port);
    say("listening", from);
    if (is_set) set(from, SO_SNDBUF, 20000), set(from, SO_RCVBUF, 30000);
    int control = ask_peer(port, "hello"), fd = accept(from, 0, 0);
    if (is_set) say_exactly("accepted", fd);
    else say("accepted", fd);
    SAY(read_all(fd, data, 6));
    if (is_set) say_exactly("after six bytes", fd);
    else say("after six bytes", fd);
    close(fd), close(control), close(from);
}

int main(void) {
    connecting();
    growing();
    setting();
    accepting(7161, 0);
    accepting(7162, 1);
}
