/* TCP_INQ: with what is read comes how much is left. */
#include "t.h"
#ifndef TCP_CM_INQ
#define TCP_CM_INQ TCP_INQ
#endif

static int set(int fd, int on) { return setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on); }

static int is_set(int fd) {
    int on = -1;
    socklen_t len = sizeof on;
    return getsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, &len) ? -1 : on;
}

static void take(int fd, int len, int flags, int room) {
    char buf[256], place[128];
    struct iovec in = {buf, len};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = place, .msg_controllen = room};
    ssize_t n = recvmsg(fd, &message, flags);
    if (n < 0) {
        NOTE("%d: %s, %zu of messages", len, name_of(errno), message.msg_controllen);
        return;
    }
    NOTE("%d: %zd, %zu of messages%s", len, n, message.msg_controllen,
         message.msg_flags & MSG_CTRUNC ? ", cut" : "");
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        int value = -1, size = c->cmsg_len - CMSG_LEN(0);
        memcpy(&value, CMSG_DATA(c), size < 4 ? size : 4);
        NOTE("  level %d type %d in %d bytes: %d", c->cmsg_level, c->cmsg_type, size,
             size < 4 ? 0 : value);
    }
}

int main(void) {
    int fd = tcp(7001);
    SAY(is_set(fd)), SAY(set(fd, 2)), SAY(set(fd, -1));
    SAY(send(fd, "0123456789abcdef", 16, 0)), readable(fd), sleep_ms(60);
    take(fd, 2, 0, 128);
    SAY(set(fd, 1)), SAY(is_set(fd));
    take(fd, 4, 0, 128), take(fd, 4, MSG_PEEK, 128), take(fd, 0, 0, 128),
        take(fd, 2, MSG_TRUNC, 128), take(fd, 2, 0, 0);
    take(fd, 1, 0, 18), take(fd, 1, 0, 10), take(fd, 1, MSG_WAITALL, 128), take(fd, 40, 0, 128),
        take(fd, 40, MSG_DONTWAIT, 128);
    SAY(set(fd, 0)), SAY(send(fd, "0123", 4, 0)), readable(fd), take(fd, 2, 0, 128);
    SAY(set(fd, 1)), SAY(shutdown(fd, SHUT_WR)), sleep_ms(60);
    take(fd, 1, 0, 128), take(fd, 1, 0, 128), take(fd, 1, 0, 128), take(fd, 1, 0, 128);
    close(fd);
    NOTE("an accepted one");
    int server = listener(8411);
    SAY(set(server, 1));
    int control = ask_peer(8411, "hello");
    fd = accept(server, 0, 0), readable(fd);
    SAY(is_set(fd)), take(fd, 2, 0, 128);
    struct mmsghdr all[2] = {0};
    char buf[8], place[2][64];
    struct iovec in[] = {{buf, 1}, {buf, 2}};
    for (int i = 0; i < 2; i++)
        all[i].msg_hdr = (struct msghdr){
            .msg_iov = in + i, .msg_iovlen = 1, .msg_control = place[i], .msg_controllen = 64};
    SAY(recvmmsg(fd, all, 2, 0, 0));
    NOTE("%u with %zu, %u with %zu", all[0].msg_len, all[0].msg_hdr.msg_controllen, all[1].msg_len,
         all[1].msg_hdr.msg_controllen);
    close(fd), close(server), close(control);
    NOTE("another socket"), fd = socket(AF_INET, SOCK_DGRAM, 0), SAY(set(fd, 1));
    return 0;
}
