/* How much a peer may send to a socket whose receive buffer was set and that nobody reads. */
#include "t.h"

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
        /* The buffer counts twice; what segments take beside their bytes goes off it on the kernel. */
        int is_twice = unread > sizes[i] * 3 / 2 && unread <= 2 * sizes[i] + 2896;
        if (is_twice) NOTE("%d: about twice as many bytes", sizes[i]);
        else NOTE("%d: %d bytes", sizes[i], unread);
        SAY(close(fd));
    }
}
