/* How large a socket's buffers may be made. */
#include "t.h"

static int limit(const char *name) {
    char path[64];
    int value = 0;
    snprintf(path, sizeof path, "/proc/sys/net/core/%s", name);
    FILE *file = fopen(path, "r");
    if (file) {
        fscanf(file, "%d", &value);
        fclose(file);
    }
    return value;
}

static void try(int fd, int set, int get, int asked, int max) {
    int got = 0;
    socklen_t len = sizeof got;
    SAY(setsockopt(fd, SOL_SOCKET, set, &asked, sizeof asked));
    SAY(getsockopt(fd, SOL_SOCKET, get, &got, &len));
    if (got == 2 * max) NOTE("%d: twice the limit", asked);
    else NOTE("%d: %d", asked, got);
}

int main(void) {
    int tcp_fd = tcp(7001), udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in own = at("0.0.0.0", 7150);
    SAY(bind(udp, (struct sockaddr *)&own, sizeof own));
    int fds[] = {tcp_fd, udp};
    for (int i = 0; i < 2; i++) {
        int sizes[] = {1 << 30, 0, 100000, -1};
        for (int j = 0; j < 4; j++) {
            try(fds[i], SO_RCVBUF, SO_RCVBUF, sizes[j], limit("rmem_max"));
            try(fds[i], SO_SNDBUF, SO_SNDBUF, sizes[j], limit("wmem_max"));
        }
        try(fds[i], SO_RCVBUFFORCE, SO_RCVBUF, 16 << 20, limit("rmem_max"));
        try(fds[i], SO_SNDBUFFORCE, SO_SNDBUF, 16 << 20, limit("wmem_max"));
    }
    SAY(close(udp));
    SAY(close(tcp_fd));
}
