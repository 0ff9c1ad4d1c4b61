/* Datagrams, connected and not. */
#include "t.h"

static void from_is(struct sockaddr_in *from, socklen_t len) {
    NOTE("from %s:%d, length %d", inet_ntoa(from->sin_addr), ntohs(from->sin_port), (int)len);
}

static void name_is(int fd) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    SAY(getsockname(fd, (void *)&name, &len));
    NOTE("name %s, %s port", inet_ntoa(name.sin_addr), name.sin_port ? "a" : "no");
}

int main(void) {
    char buf[2048];
    struct sockaddr_in from, to = at(peer_ip(), 7001);
    socklen_t len = sizeof from;
    int fd = OPEN(socket(AF_INET, SOCK_DGRAM, 0)), waiting;
    SAY(send(fd, "x", 1, 0));
    SAY(recv(fd, buf, 1, MSG_DONTWAIT));
    SAY(sendto(fd, "hello", 5, 0, (void *)&to, sizeof to));
    SAY(recvfrom(fd, buf, sizeof buf, 0, (void *)&from, &len));
    from_is(&from, len);
    SAY(sendto(fd, "", 0, 0, (void *)&to, sizeof to));
    SAY(recvfrom(fd, buf, sizeof buf, 0, (void *)&from, &len));

    NOTE("cut, peeked, counted");
    SAY(sendto(fd, "0123456789", 10, 0, (void *)&to, sizeof to));
    readable(fd);
    SAY(ioctl(fd, FIONREAD, &waiting));
    SAY(waiting);
    SAY(recv(fd, buf, 4, MSG_PEEK));
    SAY(recv(fd, buf, 4, MSG_PEEK | MSG_TRUNC));
    struct iovec in = {buf, 4};
    struct msghdr message = {
        .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &in, .msg_iovlen = 1};
    SAY(recvmsg(fd, &message, 0));
    SAY((message.msg_flags & MSG_TRUNC) != 0);
    SAY(recv(fd, buf, 4, MSG_DONTWAIT));

    NOTE("connected");
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(send(fd, "abc", 3, 0));
    SAY(recv(fd, buf, sizeof buf, 0));
    to = at(peer_ip(), 7002);
    SAY(sendto(fd, "def", 3, 0, (void *)&to, sizeof to));
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, 1, 100));
    len = sizeof from;
    SAY(getpeername(fd, (void *)&from, &len));
    from_is(&from, len);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    SAY(connect(fd, &none, sizeof none));
    SAY(getpeername(fd, (void *)&from, &len));
    name_is(fd);
    SAY(sendto(fd, "ghi", 3, 0, (void *)&to, sizeof to));
    name_is(fd);
    SAY(recv(fd, buf, sizeof buf, 0));
    SAY(recv(fd, buf, sizeof buf, 0));
    NOTE("%.6s", buf);
    SAY(close(fd));

    NOTE("disconnected");
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(connect(fd, &none, sizeof none));
    name_is(fd);
    SAY(sendto(fd, "jkl", 3, 0, (void *)&to, sizeof to));
    name_is(fd);
    SAY(close(fd));

    NOTE("nobody there");
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(connect_to(fd, peer_ip(), 7999));
    SAY(send(fd, "x", 1, 0));
    p = (struct pollfd){fd, POLLIN, 0};
    SAY(poll(&p, 1, 1000));
    say_poll("refused", p.revents);
    SAY(recv(fd, buf, 1, 0));
    SAY(recv(fd, buf, 1, MSG_DONTWAIT));
    SAY(close(fd));

    NOTE("a server");
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(fd, own_ip(), 8360));
    int second = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(second, own_ip(), 8360));
    close(second);
    SAY(listen(fd, 1));
    SAY(accept(fd, 0, 0));
    int asked = ask_peer(8360, "udp");
    len = sizeof from;
    SAY(recvfrom(fd, buf, sizeof buf, 0, (void *)&from, &len));
    NOTE("%.4s from %s", buf, inet_ntoa(from.sin_addr));
    close(asked);

    NOTE("many at once");
    to = at(peer_ip(), 7001);
    SAY(connect_to(fd, peer_ip(), 7001));
    struct iovec one = {"one", 3}, two = {"twice", 5};
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}},
                              {.msg_hdr = {.msg_iov = &two, .msg_iovlen = 1}}};
    SAY(sendmmsg(fd, many, 2, 0));
    char first[16], other[16];
    one = (struct iovec){first, 16}, two = (struct iovec){other, 16};
    sleep_ms(50);
    SAY(recvmmsg(fd, many, 2, MSG_WAITFORONE, NULL));
    NOTE("%u %u", many[0].msg_len, many[1].msg_len);
    SAY(shutdown(fd, SHUT_WR));
    SAY(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY(close(fd));
}
