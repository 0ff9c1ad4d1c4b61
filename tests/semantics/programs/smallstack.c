/* A thread with 48 KiB of stack: the first that needs the stack of the network has no room to make
 * it. */
#include "t.h"

static void echo(int fd) {
    char b[4];
    SAY(send(fd, "abc", 3, MSG_NOSIGNAL));
    SAY(recv(fd, b, 3, MSG_WAITALL));
}

static void *all(void *unused) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, peer_ip(), 7001));
    echo(fd);
    close(fd);
    int server = listener(8376), control = ask_peer(8376, "hello");
    int got = accept(server, 0, 0);
    struct pollfd p = {got, POLLIN, 0};
    SAY(poll(&p, 1, 500));
    struct tcp_info info;
    socklen_t len = sizeof info;
    SAY(getsockopt(got, IPPROTO_TCP, TCP_INFO, &info, &len));
    close(got), close(server), close(control);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(fd, own_ip(), 8377));
    SAY(connect_to(fd, own_ip(), 8377));
    SAY(send(fd, "abc", 3, 0));
    char b[4];
    SAY(recv(fd, b, 4, 0));
    close(fd);
    return unused;
}

int main(void) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    SAY(pthread_attr_setstacksize(&attr, 48 << 10));
    pthread_t thread;
    SAY(pthread_create(&thread, &attr, all, NULL));
    SAY(pthread_join(thread, NULL));
}
