/* How many datagrams wait for a program that has set the size of its receive buffer: before it has
 * waited on the socket, and after. */
#include "t.h"

static int bound(int port, int bytes) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes));
    if (bind_to(fd, own_ip(), port)) NOTE("bind: %s", name_of(errno));
    return fd;
}

/* Has the peer send 200 datagrams, in a process of its own, so that this one has not waited. */
static void have_them_sent(int port) {
    pid_t child = fork();
    if (!child) {
        char line[16];
        int control = ask_peer(port, "train");
        /* Until it has sent all, which takes longer on a busy machine. */
        while (read(control, line, sizeof line) > 0) {}
        sleep_ms(100);
        _exit(0);
    }
    waitpid(child, 0, 0);
}

static void count(int fd, int bytes) {
    char text[64], want[64];
    int number = 0, is_first = 1;
    while (recv(fd, text, sizeof text, MSG_DONTWAIT) > 0) {
        snprintf(want, sizeof want, "train %d", number++);
        is_first &= !strncmp(text, want, strlen(want));
    }
    NOTE("%d bytes: %d wait%s, then %s", bytes, number, is_first ? ", the first ones" : "",
         name_of(errno));
}

/* Datagrams of this length, which the peer echoes. */
static void echoed(int port, int bytes, int len) {
    static char text[2000];
    struct sockaddr_in to = at(peer_ip(), 7001);
    int fd = bound(port, bytes), number = 0;
    for (int i = 0; i < 60; i++) {
        sendto(fd, text, len, 0, (void *)&to, sizeof to);
        if (i % 5 == 0) sleep_ms(1);
    }
    sleep_ms(100);
    while (recv(fd, text, sizeof text, MSG_DONTWAIT) > 0) number++;
    NOTE("%d bytes, datagrams of %d: %d wait", bytes, len, number);
    close(fd);
}

int main(void) {
    int sizes[] = {4096, 16384, 65536}, lens[] = {1, 197, 198, 645, 646, 1400};
    for (int i = 0; i < 3; i++) {
        int fd = bound(7361 + i, sizes[i]);
        have_them_sent(7361 + i);
        count(fd, sizes[i]);
        have_them_sent(7361 + i);
        count(fd, sizes[i]);
        close(fd);
    }
    for (int i = 0; i < 6; i++) echoed(7371 + i, 8192, lens[i]);
    return 0;
}
