/* Attempts to connect that fail, and what the next call says. */
#include "t.h"

static int refused_port(void) { return 7998; }

static void wait_for(int fd) {
    struct pollfd p = {fd, POLLOUT, 0};
    poll(&p, 1, 2000);
}

int main(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    NOTE("the error is read first");
    SAY(connect_to(fd, peer_ip(), refused_port()));
    wait_for(fd);
    SAY(so_error(fd) == ECONNREFUSED);
    SAY(connect_to(fd, peer_ip(), refused_port()));
    SAY(connect_to(fd, peer_ip(), refused_port()));
    wait_for(fd);
    NOTE("it is not");
    SAY(connect_to(fd, peer_ip(), refused_port()));
    SAY(connect_to(fd, peer_ip(), 7001));
    wait_for(fd);
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(connect_to(fd, peer_ip(), 7001));
    close(fd);

    NOTE("a blocking one");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, peer_ip(), refused_port()));
    SAY(so_error(fd));
    SAY(connect_to(fd, peer_ip(), refused_port()));
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    SAY(getsockname(fd, (void *)&name, &len));
    NOTE("%s port", name.sin_port ? "a" : "no");
    SAY(connect_to(fd, peer_ip(), 7001));
    close(fd);

    NOTE("a port that was bound, after a refusal");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    int other = socket(AF_INET, SOCK_STREAM, 0);
    SAY(bind_to(fd, own_ip(), 8571));
    SAY(connect_to(fd, peer_ip(), refused_port()));
    SAY(bind_to(other, own_ip(), 8571));
    SAY(connect_to(fd, peer_ip(), 7001));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(bind_to(fd, own_ip(), 8572));
    SAY(connect_to(fd, peer_ip(), refused_port()));
    SAY(close(fd));
    SAY(bind_to(other, own_ip(), 8572));
    SAY(connect_to(other, peer_ip(), 7001));
    close(other);

    NOTE("one that was ended");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect_to(fd, getenv("NOBODY_IP"), 80));
    SAY(shutdown(fd, SHUT_RDWR));
    SAY(so_error(fd) == ECONNRESET);
    SAY(connect_to(fd, getenv("NOBODY_IP"), 80));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    SAY(connect(fd, &none, sizeof none));
    SAY(connect_to(fd, getenv("NOBODY_IP"), 80));
    close(fd);

    NOTE("one that a child has ended");
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(connect_to(fd, getenv("NOBODY_IP"), 80));
    struct pollfd end = {fd, POLLOUT, 0};
    if (!fork()) {
        sleep_ms(100);
        _exit(shutdown(fd, SHUT_WR) ? errno : 0);
    }
    SAY(poll(&end, 1, 2000));
    int status;
    wait(&status);
    NOTE("shutdown in the child: %d", WEXITSTATUS(status));
    SAY((end.revents & POLLHUP) != 0);
    SAY(so_error(fd) == ECONNRESET);
    SAY(connect_to(fd, peer_ip(), 7001));
    end.events = POLLOUT;
    SAY(poll(&end, 1, 2000));
    SAY(so_error(fd));
    close(fd);

    NOTE("TCP_SYNCNT");
    fd = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &one, sizeof one));
    socklen_t size = sizeof one;
    SAY(getsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &one, &size));
    SAY(one);
    one = 128;
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &one, sizeof one));
    one = 0;
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &one, sizeof one));
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &one, sizeof one));
    fd = tcp(7001);
    SAY(setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &one, sizeof one));
}
