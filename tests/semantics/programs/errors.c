/* What each call says when it cannot: sockets in every wrong state. */
#include "t.h"

int main(void) {
    char buf[16];
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;

    OPEN(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    OPEN(socket(AF_INET, 77, 0));
    OPEN(socket(9999, SOCK_STREAM, 0));

    int fd = OPEN(socket(AF_INET, SOCK_STREAM, 0));
    SAY(read(fd, buf, 1));
    SAY(recv(fd, buf, 1, MSG_DONTWAIT));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(shutdown(fd, SHUT_WR));
    SAY(getpeername(fd, (void *)&addr, &len));
    len = sizeof addr;
    SAY(getsockname(fd, (void *)&addr, &len));
    NOTE("any address: %d, port 0: %d", addr.sin_addr.s_addr == 0, addr.sin_port == 0);
    SAY(accept(fd, 0, 0));
    SAY(bind_to(fd, "203.0.113.9", 8100));
    addr = at(own_ip(), 8100);
    SAY(bind(fd, (void *)&addr, 4));
    SAY(connect(fd, (void *)&addr, 4));
    SAY(bind(fd, (void *)&addr, 500));
    SAY(connect(fd, NULL, sizeof addr));
    addr.sin_family = AF_INET6;
    SAY(connect(fd, (void *)&addr, sizeof addr));
    SAY(bind_to(fd, own_ip(), 8100));
    SAY(bind_to(fd, own_ip(), 8101));
    SAY(listen(fd, 5));
    SAY(listen(fd, 7));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(read(fd, buf, 1));
    nonblocking(fd);
    SAY(accept(fd, 0, 0));
    SAY(accept4(fd, 0, 0, 0x40));
    SAY(getpeername(fd, (void *)&addr, &len));

    int second = OPEN(socket(AF_INET, SOCK_STREAM, 0));
    SAY(bind_to(second, own_ip(), 8100));
    SAY(connect_to(second, peer_ip(), 7999));
    SAY(connect_to(second, peer_ip(), 7001));
    SAY(connect_to(second, peer_ip(), 7001));
    SAY(bind_to(second, own_ip(), 8102));
    SAY(listen(second, 1));
    SAY(accept(second, 0, 0));
    SAY(shutdown(second, 9));
    SAY(setsockopt(second, SOL_SOCKET, 9999, buf, 4));
    SAY(setsockopt(second, SOL_SOCKET, SO_KEEPALIVE, buf, 1));
    SAY(setsockopt(second, IPPROTO_TCP, TCP_NODELAY, NULL, 4));
    SAY(setsockopt(second, 9999, 1, buf, 4));
    SAY(lseek(second, 0, SEEK_SET));
    SAY(pread(second, buf, 1, 0));
    SAY(ftruncate(second, 0));
    SAY(fsync(second));
    SAY(close(second));
    SAY(close(second));
    SAY(read(second, buf, 1));
    SAY(send(second, "x", 1, 0));
    SAY(connect_to(second, peer_ip(), 7001));
    SAY(close(fd));

    fd = OPEN(socket(AF_INET, SOCK_STREAM, 0));
    struct stat st;
    SAY(fstat(fd, &st));
    NOTE("a socket: %d", S_ISSOCK(st.st_mode));
    close(fd);
}
