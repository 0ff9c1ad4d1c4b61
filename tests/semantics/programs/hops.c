/* Segments from too far away (IP_MINTTL, IPV6_MINHOPCOUNT): the peer's hop limit is 64. */
#include "t.h"
#include <netinet/in.h>

static int least(int fd, int hops) {
    return setsockopt(fd, IPPROTO_IP, IP_MINTTL, &hops, sizeof hops);
}

static void say_readable(const char *when, int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    NOTE("%s: %s", when, poll(&p, 1, ms) ? "readable" : "nothing");
}

static void connection(void) {
    char buf[8] = "";
    int fd = tcp(7001);
    SAY(least(fd, 65));
    SAY(write(fd, "hello", 5));
    say_readable("from too far away", fd, 300);
    SAY(least(fd, 64));
    say_readable("near enough", fd, 3000);
    SAY(read_all(fd, buf, 5));
    NOTE("%s", buf);
    SAY(close(fd));
}

static void listening(void) {
    int from = listener(8587);
    SAY(least(from, 65));
    int control = ask_peer(8587, "hello");
    say_readable("a listener", from, 300);
    SAY(least(from, 64));
    say_readable("a listener afterwards", from, 3000);
    int fd = accept(from, 0, 0), hops = 0;
    socklen_t len = sizeof hops;
    SAY(getsockopt(fd, IPPROTO_IP, IP_MINTTL, &hops, &len));
    NOTE("an accepted connection has %d", hops);
    close(fd), close(control), close(from);
}

int main(void) {
    connection();
    listening();
}
