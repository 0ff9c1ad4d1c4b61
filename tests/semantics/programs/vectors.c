/* Several buffers, messages, and their limits. */
#include "t.h"

int main(void) {
    char a[4] = "", b[4] = "", c[16] = "";
    int fd = tcp(7001);
    struct iovec out[3] = {{"abc", 3}, {NULL, 0}, {"defgh", 5}};
    SAY(writev(fd, out, 3));
    readable(fd);
    struct iovec in[3] = {{a, 3}, {b, 3}, {c, 16}};
    SAY(readv(fd, in, 3));
    NOTE("%.3s %.3s %.2s", a, b, c);
    SAY(writev(fd, out, 0));
    SAY(writev(fd, out, -1));
    SAY(writev(fd, out, 1025));
    SAY(readv(fd, in, 1025));
    SAY(writev(fd, NULL, 1));

    struct sockaddr_in from;
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 3};
    SAY(sendmsg(fd, &message, 0));
    readable(fd);
    message = (struct msghdr){.msg_iov = in,
                              .msg_iovlen = 3,
                              .msg_name = &from,
                              .msg_namelen = sizeof from,
                              .msg_flags = -1};
    SAY(recvmsg(fd, &message, 0));
    NOTE("name %d, control %d, flags %d", (int)message.msg_namelen, (int)message.msg_controllen,
         message.msg_flags);
    message.msg_iovlen = 1025;
    SAY(recvmsg(fd, &message, 0));
    SAY(sendmsg(fd, &message, 0));
    SAY(recvmsg(fd, NULL, 0));
    SAY(preadv2(fd, in, 1, -1, 8));
    SAY(preadv2(fd, in, 1, 0, 0));

    struct iovec one = {"xyz", 3}, two = {"12", 2};
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}},
                              {.msg_hdr = {.msg_iov = &two, .msg_iovlen = 1}}};
    SAY(sendmmsg(fd, many, 2, 0));
    NOTE("%u %u", many[0].msg_len, many[1].msg_len);
    SAY(recv(fd, c, 5, MSG_WAITALL));
    NOTE("%.5s", c);
    SAY(recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL));
    /* Bytes that nobody wants need no place. */
    SAY(send(fd, "0123456789", 10, 0));
    readable(fd);
    struct iovec nowhere = {NULL, 4};
    message = (struct msghdr){.msg_iov = &nowhere, .msg_iovlen = 1};
    SAY(recvmsg(fd, &message, 0));
    SAY(recvmsg(fd, &message, MSG_TRUNC));
    SAY(recv(fd, NULL, 3, 0));
    SAY(recv(fd, NULL, 3, MSG_TRUNC | MSG_WAITALL));
    SAY(recv(fd, c, 3, MSG_WAITALL));
    NOTE("%.3s", c);
    SAY(close(fd));
}
