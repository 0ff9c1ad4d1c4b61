/* Ports whose connections are in TIME-WAIT or still open, and who may bind to them. (The kernel
 * also refuses SO_REUSEADDR where the connection's own socket did without: not compared.) */
#include "t.h"

static int listens(int port, int reuses) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (reuses) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuses, sizeof reuses);
    SAY(bind_to(fd, own_ip(), port)), SAY(listen(fd, 4));
    return fd;
}

static void binds(const char *ip, int port, int option) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (option) setsockopt(fd, SOL_SOCKET, option, &one, sizeof one);
    int result = SAY(bind_to(fd, ip, port));
    /* A refused socket may have another port. */
    if (result < 0) SAY(bind_to(fd, ip, port + 1000));
    close(fd);
}

static void everybody(int port) {
    NOTE("neither option"), binds(own_ip(), port, 0);
    NOTE("all addresses"), binds("0.0.0.0", port, 0);
    NOTE("another address"), binds("127.0.0.1", port, 0);
    NOTE("SO_REUSEADDR"), binds(own_ip(), port, SO_REUSEADDR);
}

/* A connection that this side closes first, and whose peer has closed too. */
static void served(int port, int reuses) {
    int fd = listens(port, reuses), asked = ask_peer(port, "hello");
    int connection = accept(fd, NULL, NULL);
    char text[8];
    SAY(read(connection, text, 6));
    SAY(shutdown(connection, SHUT_WR));
    SAY(read(connection, text, 6));
    close(connection), close(fd), close(asked);
}

static void waits(int port, int reuses) {
    NOTE("TIME-WAIT of a listener %s SO_REUSEADDR", reuses ? "with" : "without");
    served(port, reuses);
    sleep_ms(60);
    NOTE("neither option"), binds(own_ip(), port, 0);
    if (reuses) everybody(port);
}

static void open_one(int port) {
    NOTE("a connection without its listener");
    int fd = listens(port, 1), asked = ask_peer(port, "silent");
    int connection = accept(fd, NULL, NULL);
    close(fd);
    everybody(port);
    close(connection), close(asked);
}

static void peer_closed(int port) {
    NOTE("the peer has closed first");
    int fd = listens(port, 0), asked = ask_peer(port, "bye");
    int connection = accept(fd, NULL, NULL);
    char text[8];
    SAY(read(connection, text, 6));
    close(connection), close(fd), close(asked);
    sleep_ms(200);
    NOTE("neither option"), binds(own_ip(), port, 0);
}

static void of_another(int port) {
    NOTE("TIME-WAIT of a program that has ended");
    fflush(stdout);
    if (fork() == 0) {
        served(port, 1);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    sleep_ms(200);
    everybody(port);
}

static void connected(int port) {
    NOTE("the port of an attempt's own end");
    int one = socket(AF_INET, SOCK_STREAM, 0);
    SAY(bind_to(one, own_ip(), port)), SAY(connect_to(one, peer_ip(), 7001));
    binds(own_ip(), port, 0);
    close(one);
}

int main(void) {
    waits(8711, 0);
    waits(8712, 1);
    open_one(8713);
    peer_closed(8714);
    connected(8716);
    of_another(8715);
}
