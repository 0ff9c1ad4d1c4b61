/* TCP_SAVE_SYN: the headers of the SYN that opened a connection. */
#include "t.h"

enum { SAVE_SYN = 27, SAVED_SYN = 28 };

static int save(int fd, int value) {
    return setsockopt(fd, IPPROTO_TCP, SAVE_SYN, &value, sizeof value);
}

static int saves(int fd) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, IPPROTO_TCP, SAVE_SYN, &value, &len) ? -1 : value;
}

static long saved(int fd, unsigned char *at, socklen_t len) {
    if (!getsockopt(fd, IPPROTO_TCP, SAVED_SYN, at, &len)) return len;
    int error = errno;
    NOTE("length %d", (int)len);
    errno = error;
    return -1;
}

/* What does not depend on chance: no numbers, ports and checksums. */
static void say(const unsigned char *at, long len) {
    int is_v6 = at[0] >> 4 == 6, header = is_v6 ? 40 : (at[0] & 15) * 4;
    if (is_v6) NOTE("IPv6, %d bytes, next %d, limit %d", at[4] << 8 | at[5], at[6], at[7]);
    else
        NOTE("IPv4, %d bytes, tos %d, fragment %x, ttl %d, protocol %d", at[2] << 8 | at[3], at[1],
             at[6], at[8], at[9]);
    const unsigned char *tcp = at + header;
    printf("to %d, flags %x, window %d, options", tcp[2] << 8 | tcp[3], tcp[13],
           tcp[14] << 8 | tcp[15]);
    for (const unsigned char *o = tcp + 20; o < at + len; o += *o < 2 ? 1 : o[1]) {
        printf(" %d", *o);
        if (*o == 2) printf(" (%d)", o[2] << 8 | o[3]);
    }
    NOTE("%s", "");
}

static int accepted(int l, int port) {
    int asked = ask_peer(port, "hello"), fd = accept(l, 0, 0);
    close(asked);
    return fd;
}

int main(void) {
    unsigned char bytes[256] = {0};
    int l = listener(8610), fd;
    SAY(saves(l));
    SAY(save(l, 3));
    SAY(save(l, -1));
    SAY(setsockopt(l, IPPROTO_TCP, SAVED_SYN, bytes, 4));
    fd = accepted(l, 8610);
    SAY(saved(fd, bytes, sizeof bytes));
    close(fd);

    NOTE("asked for");
    SAY(save(l, 1));
    SAY(saves(l));
    SAY(saved(l, bytes, sizeof bytes));
    fd = accepted(l, 8610);
    SAY(saves(fd));
    SAY(saved(fd, bytes, 20));
    long len = SAY(saved(fd, bytes, sizeof bytes));
    say(bytes, len);
    SAY(saved(fd, bytes, sizeof bytes));
    SAY(read_all(fd, bytes, 6));
    close(fd);

    NOTE("no more");
    SAY(save(l, 0));
    fd = accepted(l, 8610);
    SAY(saved(fd, bytes, sizeof bytes));
    close(fd), close(l);

    NOTE("a connection of our own");
    fd = tcp(7001);
    SAY(save(fd, 1));
    SAY(saved(fd, bytes, sizeof bytes));
    close(fd);

    NOTE("IPv6");
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(8611)};
    inet_pton(AF_INET6, getenv("OWN_IP6"), &own.sin6_addr);
    l = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
    SAY(save(l, 1));
    SAY(bind(l, (void *)&own, sizeof own));
    SAY(listen(l, 4));
    int out = OPEN(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
    SAY(connect(out, (void *)&own, sizeof own));
    fd = OPEN(accept(l, 0, 0));
    len = SAY(saved(fd, bytes, sizeof bytes));
    NOTE("next %d, limit %d, to %d", bytes[6], bytes[7], bytes[42] << 8 | bytes[43]);
    SAY(close(fd));
}
