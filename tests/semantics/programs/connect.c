/* Connecting, blocking and not. */
#include "t.h"

static int started(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect_to(fd, peer_ip(), port));
    return fd;
}

int main(void) {
    char buf[16];
    int fd = started(7001);
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("connected", p.revents);
    SAY(so_error(fd));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(write(fd, "abc", 3));
    readable(fd);
    SAY(read(fd, buf, sizeof buf));
    SAY(read(fd, buf, sizeof buf));
    SAY(close(fd));

    fd = started(7999);
    p = (struct pollfd){fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("refused", p.revents);
    NOTE("SO_ERROR %s", name_of(so_error(fd)));
    SAY(so_error(fd));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(read(fd, buf, 1));
    SAY(close(fd));

    fd = started(7999);
    sleep_ms(100);
    SAY(connect_to(fd, peer_ip(), 7999));
    SAY(close(fd));

    /* An address where nobody is: the answer stays out. */
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect_to(fd, getenv("NOBODY_IP"), 7001));
    SAY(connect_to(fd, getenv("NOBODY_IP"), 7001));
    p = (struct pollfd){fd, POLLIN | POLLOUT, 0};
    SAY(poll(&p, 1, 50));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(read(fd, buf, 1));
    SAY(close(fd));

    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, peer_ip(), 7999));
    SAY(close(fd));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, peer_ip(), 7002));
    SAY(read(fd, buf, sizeof buf));
    SAY(read(fd, buf, sizeof buf));
    SAY(close(fd));

    /* Bound before it connects. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(bind_to(fd, own_ip(), 8200));
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLRDHUP, {.fd = fd}};
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(epoll_wait(set, &event, 1, 1000));
    NOTE("events %x", event.events);
    p = (struct pollfd){fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("bound and connected", p.revents);
    SAY(close(set));
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;
    SAY(getsockname(fd, (void *)&addr, &len));
    NOTE("%s:%d", inet_ntoa(addr.sin_addr), ntohs(addr.sin_port));
    SAY(close(fd));
}
