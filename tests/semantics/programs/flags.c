/* The flags of recv and send. */
#include "t.h"

int main(void) {
    char buf[64];
    int fd = tcp(7001), waiting;
    SAY(recv(fd, buf, 1, MSG_DONTWAIT));
    SAY(write(fd, "abcdef", 6));
    readable(fd);
    SAY(ioctl(fd, FIONREAD, &waiting));
    SAY(waiting);
    SAY(recv(fd, buf, 3, MSG_PEEK));
    SAY(recv(fd, buf, 64, MSG_PEEK | MSG_DONTWAIT));
    NOTE("%.6s", buf);
    SAY(recv(fd, buf, 2, 0));
    NOTE("%.2s", buf);
    SAY(recv(fd, buf, 2, MSG_TRUNC));
    SAY(ioctl(fd, FIONREAD, &waiting));
    SAY(waiting);
    SAY(read(fd, buf, 0));
    SAY(recv(fd, buf, 0, MSG_PEEK));
    SAY(recv(fd, buf, 64, 0));
    SAY(send(fd, "", 0, 0));
    SAY(write(fd, "", 0));

    NOTE("MSG_WAITALL");
    int late = tcp(7008);
    SAY(write(late, "ok", 2));
    SAY(recv(late, buf, 7, MSG_WAITALL));
    NOTE("%.7s", buf);
    SAY(close(late));
    late = tcp(7002);
    SAY(recv(late, buf, 60, MSG_WAITALL));
    SAY(recv(late, buf, 60, MSG_WAITALL));
    SAY(close(late));

    NOTE("MSG_MORE");
    SAY(send(fd, "one ", 4, MSG_MORE));
    SAY(send(fd, "two", 3, 0));
    SAY(recv(fd, buf, 7, MSG_WAITALL));
    NOTE("%.7s", buf);

    NOTE("full segments wait for nothing");
    int more = tcp(7001);
    static char segments[2 * 1448];
    for (int i = 0; i < 2; i++) {
        SAY(send(more, segments, 1448, MSG_MORE));
        sleep_ms(60);
    }
    SAY(recv(more, segments, sizeof segments, MSG_DONTWAIT));
    SAY(close(more));

    NOTE("sizes");
    static char big[1 << 20], back[1 << 20];
    for (size_t i = 0; i < sizeof big; i++) big[i] = i * 7;
    int source = tcp(7005);
    SAY(recv(source, back, sizeof back, MSG_WAITALL));
    int wrong = 0;
    for (size_t i = 0; i < sizeof back; i++) wrong += back[i] != (char)(i % 251);
    SAY(wrong);
    SAY(read(source, back, 1));
    SAY(close(source));
    int sink = tcp(7004);
    SAY(send(sink, big, sizeof big, 0));
    SAY(shutdown(sink, SHUT_WR));
    long n = read_all(sink, buf, sizeof buf);
    NOTE("%.*s", (int)n, buf);
    SAY(close(sink));
    SAY(close(fd));
}
