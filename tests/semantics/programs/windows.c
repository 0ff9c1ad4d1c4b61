/* How much a peer may send to a socket whose receive buffer was set and that nobody reads, and how
 * much waits in one whose send buffer was set when the peer reads nothing. */
#include "t.h"

#define SIOCOUTQNSD 0x894b

/* A peer with a small receive buffer: nearly all of it waits here. */
static void send_buffer(int size, int chunk) {
    static char data[65536];
    int fd = socket(AF_INET, SOCK_STREAM, 0), given, queued = -1, unsent = -1;
    socklen_t len = sizeof given;
    SAY(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    SAY(connect_to(fd, peer_ip(), 7006));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (int stalls = 0; stalls < 3;) {
        if (send(fd, data, chunk, 0) > 0) stalls = 0;
        else usleep(250000), stalls++;
    }
    getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &given, &len);
    SAY(ioctl(fd, TIOCOUTQ, &queued));
    SAY(ioctl(fd, SIOCOUTQNSD, &unsent));
    int is_third_more = queued > size * 6 / 5 && queued <= size * 8 / 5;
    if (is_third_more)
        NOTE("%d (given %d) in pieces of %d: about a third more bytes wait", size, given, chunk);
    else NOTE("%d (given %d) in pieces of %d: %d bytes", size, given, chunk, queued);
    if (unsent != queued) NOTE("%d of them have not left", unsent);
    SAY(close(fd));
}

/* A blocked sender goes on when room comes, and stops at the same limit. */
static void blocking_sender(void) {
    static char data[1 << 20];
    int fd = socket(AF_INET, SOCK_STREAM, 0), size = 65536;
    struct timeval limit = {0, 700000};
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    SAY(connect_to(fd, peer_ip(), 7006));
    long sent = send(fd, data, sizeof data, 0);
    if (sent > size * 6 / 5 && sent < size * 8 / 5) NOTE("about a third more was taken");
    else NOTE("%ld bytes were taken", sent);
    SAY(close(fd));
}

int main(void) {
    int sizes[] = {16384, 65536, 200000};
    for (int i = 0; i < 3; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), unread = 0, before;
        SAY(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &sizes[i], sizeof sizes[i]));
        SAY(connect_to(fd, peer_ip(), 7005));
        /* Until nothing more comes: the last bytes wait for a probe of the closed window. */
        do {
            before = unread;
            usleep(700000);
            ioctl(fd, FIONREAD, &unread);
        } while (unread != before);
        /* The buffer counts twice; what segments take beside their bytes goes off it on the
         * kernel. */
        int is_twice = unread > sizes[i] * 3 / 2 && unread <= 2 * sizes[i] + 2896;
        if (is_twice) NOTE("%d: about twice as many bytes", sizes[i]);
        else NOTE("%d: %d bytes", sizes[i], unread);
        SAY(close(fd));
    }
    for (int i = 0; i < 3; i++) send_buffer(sizes[i], 1448), send_buffer(sizes[i], 65536);
    blocking_sender();
    int fresh = socket(AF_INET, SOCK_STREAM, 0), unsent = -1;
    SAY(ioctl(fresh, SIOCOUTQNSD, &unsent));
    NOTE("%d bytes have not left", unsent);
    SAY(listen(fresh, 1));
    SAY(ioctl(fresh, SIOCOUTQNSD, &unsent));
}
