/* At the limit of descriptors: calls that make none go on. */
#include "t.h"
#include <sys/resource.h>

static void *reader(void *fd) {
    char b;
    SAY(read((intptr_t)fd, &b, 1));
    return 0;
}

int main(void) {
    struct rlimit r = {300, 300};
    setrlimit(RLIMIT_NOFILE, &r);
    int fd = tcp(7008), late = tcp(7008), fresh = socket(AF_INET, SOCK_STREAM, 0);
    int bare = socket(AF_INET, SOCK_DGRAM, 0), third = socket(AF_INET, SOCK_STREAM, 0);
    while (open("/dev/null", O_RDONLY) >= 0) {}
    NOTE("%s", name_of(errno));
    int v = 60;
    socklen_t len = sizeof v;
    struct timeval t = {2, 0};
    struct linger linger = {1, 3};
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, sizeof v));
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &v, sizeof v));
    SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &v, &len));
    SAY(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, (len = sizeof t, &len)));
    SAY(bind_to(fresh, own_ip(), 8510));
    SAY(listen(fresh, 5));
    SAY(bind_to(bare, own_ip(), 8510));
    SAY(connect_to(third, peer_ip(), 7001));
    pthread_t thread;
    pthread_create(&thread, 0, reader, (void *)(intptr_t)fd);
    pthread_join(thread, 0);
    pthread_create(&thread, 0, reader, (void *)(intptr_t)late);
    struct pollfd p = {third, POLLIN, 0};
    long start = now_ms();
    SAY(poll(&p, 1, 100));
    NOTE("%s", took(start, 100));
    pthread_join(thread, 0);
    SAY(socket(AF_INET, SOCK_STREAM, 0));
    return 0;
}
