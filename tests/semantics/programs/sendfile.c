/* sendfile to a socket. */
#include "t.h"

int main(void) {
    char buf[256], path[] = "/tmp/ss-semantics-XXXXXX";
    int file = mkstemp(path), fd = tcp(7001);
    unlink(path);
    for (int i = 0; i < 100; i++) dprintf(file, "%09d\n", i);
    off_t at = 10;
    SAY(sendfile(fd, file, &at, 30));
    SAY(at);
    SAY(recv(fd, buf, 30, MSG_WAITALL));
    NOTE("%.30s", buf);
    SAY(lseek(file, 990, SEEK_SET));
    SAY(sendfile(fd, file, NULL, 100));
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(recv(fd, buf, 10, MSG_WAITALL));
    SAY(sendfile(fd, file, NULL, 100));
    at = 5000;
    SAY(sendfile(fd, file, &at, 10));
    at = -1;
    SAY(sendfile(fd, file, &at, 10));
    SAY(sendfile(fd, 999, NULL, 10));
    SAY(sendfile(fd, file, NULL, 0));
    int pair[2];
    SAY(pipe(pair));
    int closed = socket(AF_INET, SOCK_STREAM, 0);
    at = 0;
    signal(SIGPIPE, SIG_IGN);
    SAY(sendfile(closed, file, &at, 10));

    NOTE("large, to one who reads, and to one who does not");
    SAY(ftruncate(file, 4 << 20));
    int sink = tcp(7004);
    at = 0;
    long total = 0, n;
    while ((n = sendfile(sink, file, &at, 4 << 20)) > 0) total += n;
    SAY(total);
    SAY(shutdown(sink, SHUT_WR));
    n = read_all(sink, buf, sizeof buf);
    NOTE("%.*s", (int)n, buf);
    int full = tcp(7006), size = 4096;
    setsockopt(full, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    nonblocking(full);
    at = 0;
    while ((n = sendfile(full, file, &at, 4 << 20)) > 0) {}
    NOTE("%ld %s, less than all: %d", n, name_of(errno), at < 4 << 20);
    close(full), close(sink), close(fd);
}
