/* Names and options. */
#include "t.h"

static void option(int fd, int level, int name, const char *text) {
    int value = -1;
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, &value, &len)) NOTE("%s: %s", text, name_of(errno));
    else NOTE("%s: %d, length %d", text, value, (int)len);
}

static void set(int fd, int level, int name, int value, const char *text) {
    int result = setsockopt(fd, level, name, &value, sizeof value);
    if (result) NOTE("set %s: %s", text, name_of(errno));
    else option(fd, level, name, text);
}
#define OPTION(level, name) option(fd, level, name, #name)
#define SET(level, name, value) set(fd, level, name, value, #name)

static void named(int fd, int (*ask)(int, struct sockaddr *, socklen_t *), const char *text) {
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;
    if (ask(fd, (void *)&addr, &len)) {
        NOTE("%s: %s", text, name_of(errno));
        return;
    }
    int port = ntohs(addr.sin_port);
    printf("%s: family %d, length %d, %s, ", text, addr.sin_family, (int)len,
           inet_ntoa(addr.sin_addr));
    if (port >= 7000 && port < 9000) NOTE("port %d", port);
    else NOTE("port %s", port ? "chosen" : "0");
}

int main(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    OPTION(SOL_SOCKET, SO_TYPE);
    OPTION(SOL_SOCKET, SO_DOMAIN);
    OPTION(SOL_SOCKET, SO_PROTOCOL);
    OPTION(SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(SOL_SOCKET, SO_ERROR);
    OPTION(SOL_SOCKET, SO_REUSEADDR);
    SET(SOL_SOCKET, SO_REUSEADDR, 5);
    SET(SOL_SOCKET, SO_REUSEPORT, 1);
    SET(SOL_SOCKET, SO_KEEPALIVE, 1);
    SET(SOL_SOCKET, SO_BROADCAST, 1);
    SET(SOL_SOCKET, SO_RCVLOWAT, 1);
    SET(SOL_SOCKET, SO_RCVBUF, 50000);
    SET(SOL_SOCKET, SO_SNDBUF, 50000);
    OPTION(IPPROTO_TCP, TCP_NODELAY);
    SET(IPPROTO_TCP, TCP_NODELAY, 1);
    SET(IPPROTO_TCP, TCP_CORK, 1);
    SET(IPPROTO_TCP, TCP_CORK, 0);
    SET(IPPROTO_TCP, TCP_KEEPIDLE, 100);
    SET(IPPROTO_TCP, TCP_KEEPIDLE, 0);
    SET(IPPROTO_TCP, TCP_KEEPINTVL, 10);
    SET(IPPROTO_TCP, TCP_KEEPCNT, 4);
    SET(IPPROTO_TCP, TCP_KEEPCNT, 1000);
    SET(IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
    SET(IPPROTO_TCP, TCP_DEFER_ACCEPT, 1);
    SET(IPPROTO_TCP, TCP_QUICKACK, 1);
    SET(IPPROTO_TCP, TCP_SYNCNT, 3);
    SET(IPPROTO_TCP, TCP_LINGER2, 5);
    SET(IPPROTO_IP, IP_TOS, 16);
    SET(IPPROTO_IP, IP_TTL, 33);
    SET(IPPROTO_IP, IP_TTL, 0);
    struct linger linger = {1, 7}, back = {0};
    socklen_t len = sizeof back;
    SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    SAY(getsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &len));
    NOTE("%d %d", back.l_onoff, back.l_linger);
    char name[16] = "";
    len = sizeof name;
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len));
    NOTE("%s", name);
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
    named(fd, getsockname, "unbound");
    SAY(connect_to(fd, peer_ip(), 7001));
    named(fd, getsockname, "own");
    named(fd, getpeername, "peer");
    OPTION(SOL_SOCKET, SO_RCVBUF);
    OPTION(IPPROTO_TCP, TCP_NODELAY);
    OPTION(SOL_SOCKET, SO_KEEPALIVE);
    struct tcp_info info;
    len = sizeof info;
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    NOTE("established: %d", info.tcpi_state == TCP_ESTABLISHED);
    char short_place[2];
    len = 2;
    struct sockaddr_in addr;
    SAY(getsockopt(fd, SOL_SOCKET, SO_TYPE, short_place, &len));
    NOTE("cut to %d", (int)len);
    len = 4;
    SAY(getsockname(fd, (void *)&addr, &len));
    NOTE("whole length %d", (int)len);
    len = -1;
    SAY(getsockname(fd, (void *)&addr, &len));
    SAY(close(fd));

    int server = listener(8350);
    fd = server;
    OPTION(SOL_SOCKET, SO_ACCEPTCONN);
    named(server, getsockname, "listener");
    named(server, getpeername, "listener's peer");
    SAY(setsockopt(server, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    SET(IPPROTO_TCP, TCP_NODELAY, 1);
    int asked = ask_peer(8350, "hello");
    len = sizeof addr;
    fd = OPEN(accept(server, (void *)&addr, &len));
    NOTE("from %s, length %d", inet_ntoa(addr.sin_addr), (int)len);
    named(fd, getsockname, "accepted");
    OPTION(SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(IPPROTO_TCP, TCP_NODELAY);
    len = sizeof name;
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len));
    NOTE("%s", name);
    close(asked), close(fd), close(server);

    fd = socket(AF_INET, SOCK_DGRAM, 0);
    OPTION(SOL_SOCKET, SO_TYPE);
    OPTION(SOL_SOCKET, SO_PROTOCOL);
    SAY(bind_to(fd, own_ip(), 0));
    named(fd, getsockname, "datagrams");
    named(fd, getpeername, "datagrams' peer");
    close(fd);
}
