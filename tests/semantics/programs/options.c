/* Every option of Linux's: what it is, what may be set, and what it is then. Where a socket has the
 * kernel's answer by nature (cookies, clocks, sizes that tune themselves) it is left out, and so is
 * what the stack refuses as a kernel without it would;
 * crates/posix/src/socket/options/meaning.rs has those, with tests of their own. */
#include "t.h"

static int is_left_out(int which, int level, int name) {
    static const int places[][2] = {
        {SOL_SOCKET, SO_COOKIE},
        {SOL_SOCKET, 49 /* SO_INCOMING_CPU */},
        {SOL_SOCKET, 55 /* SO_MEMINFO */},
        {SOL_SOCKET, 37 /* SO_TIMESTAMPING */},
        {SOL_SOCKET, 65},
        {SOL_SOCKET, 47 /* SO_MAX_PACING_RATE */},
        {SOL_SOCKET, 50 /* SO_ATTACH_BPF */},
        {SOL_SOCKET, 51 /* …_REUSEPORT_CBPF */},
        {SOL_SOCKET, 52 /* …_EBPF */},
        {IPPROTO_IP, 4 /* IP_OPTIONS */},
        {IPPROTO_IP, 25 /* IP_RECVFRAGSIZE */},
        {IPPROTO_IP, 52},
        {IPPROTO_TCP, 11 /* TCP_INFO */},
        {IPPROTO_TCP, 13 /* TCP_CONGESTION */},
        {IPPROTO_TCP, 14},
        {IPPROTO_TCP, 19},
        {IPPROTO_TCP, 20},
        {IPPROTO_TCP, 21},
        {IPPROTO_TCP, 24 /* TCP_TIMESTAMP */},
        {IPPROTO_TCP, 26},
        {IPPROTO_TCP, 27},
        {IPPROTO_TCP, 28},
        {IPPROTO_TCP, 32},
        {IPPROTO_TCP, 33 /* TCP_FASTOPEN_KEY */},
        {IPPROTO_TCP, 37},
        {IPPROTO_TCP, 38},
        {IPPROTO_TCP, 39},
        {IPPROTO_TCP, 40},
        {IPPROTO_UDP, 100},
        {IPPROTO_IPV6, 11 /* IPV6_FLOWINFO */},
        {IPPROTO_IPV6, 32},
        {IPPROTO_IPV6, 33},
        {IPPROTO_IPV6, 77 /* IPV6_RECVFRAGSIZE */},
    };
    for (int i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i][0] == level && places[i][1] == name) return 1;
    /* Of a connection. */
    return which == 4 && ((level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF)) ||
                          (level == IPPROTO_TCP && name == TCP_WINDOW_CLAMP));
}

static void show(int fd, int level, int name) {
    unsigned char value[512];
    socklen_t len = sizeof value;
    memset(value, 0xee, sizeof value);
    if (getsockopt(fd, level, name, value, &len)) printf(" %s", name_of(errno));
    else if (len > 16) printf(" %d bytes", len);
    else {
        printf(" ");
        for (int i = 0; i < len; i++) printf("%02x", value[i]);
    }
}

static void set(int fd, int level, int name, int value, socklen_t len) {
    int failed = setsockopt(fd, level, name, &value, len);
    printf(", %d/%d %s", value, len, failed ? name_of(errno) : "0");
}

/* Servers that refuse source routes read them from each connection, and clear them. */
static void packet_options(int fd) {
    printf("IP_OPTIONS:");
    show(fd, IPPROTO_IP, IP_OPTIONS);
    NOTE(", cleared %s", setsockopt(fd, IPPROTO_IP, IP_OPTIONS, 0, 0) ? name_of(errno) : "0");
}

static int made(int which) {
    int fd;
    switch (which) {
    case 0: return socket(AF_INET, SOCK_STREAM, 0);
    case 1: return socket(AF_INET6, SOCK_STREAM, 0);
    case 2: return socket(AF_INET, SOCK_DGRAM, 0);
    case 3: return socket(AF_INET6, SOCK_DGRAM, 0);
    case 4: return tcp(7001);
    case 5: fd = socket(AF_INET, SOCK_DGRAM, 0); connect_to(fd, peer_ip(), 7001); return fd;
    case 6: return listener(8581);
    default: fd = socket(AF_INET, SOCK_DGRAM, 0); bind_to(fd, own_ip(), 8582); return fd;
    }
}

static const char *kinds[] = {"stream",     "stream 6",  "datagrams", "datagrams 6",
                              "connection", "connected", "listener",  "bound"};

int main(void) {
    static const struct {
        int level, last;
    } levels[] = {{SOL_SOCKET, 84},
                  {IPPROTO_IP, 54},
                  {IPPROTO_IPV6, 80},
                  {IPPROTO_TCP, 46},
                  {IPPROTO_UDP, 110}};
    static const int values[] = {1, 0, -1, 7, 100000};
    for (int which = 0; which < 8; which++) {
        int fd = made(which);
        printf("%s ", kinds[which]);
        packet_options(fd);
        close(fd);
    }
    for (int which = 0; which < 8; which++)
        for (int l = 0; l < 5; l++)
            for (int name = 1; name <= levels[l].last; name++) {
                int level = levels[l].level;
                if (is_left_out(which, level, name)) continue;
                int fd = made(which);
                printf("%s %d %d:", kinds[which], level, name);
                show(fd, level, name);
                for (int i = 0; i < 5; i++)
                    set(fd, level, name, values[i], 4), show(fd, level, name);
                set(fd, level, name, 1, 1), show(fd, level, name);
                set(fd, level, name, 1, 0);
                NOTE("");
                close(fd);
            }
}
