/* A UDP server that returns every datagram to its sender, from the address that it was sent to.
 *
 *     udp_echo --ip 10.0.0.5/24 --if eth1
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ff_api.h"

/* FreeBSD's option and control message: the address that a datagram was sent to. */
#define BSD_IP_RECVDSTADDR 7

static int kq;
static int sock;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void on_signal(int signal)
{
    (void)signal;
    ff_stop_run();
}

/* The received control message is passed to sendmsg, where FreeBSD takes it as the source. */
static int echo_one(void)
{
    static char bytes[65536];
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(struct in_addr))];
    } control;
    struct sockaddr_in from;
    struct iovec piece;
    struct msghdr message;
    ssize_t got;

    piece.iov_base = bytes;
    piece.iov_len = sizeof bytes;
    memset(&message, 0, sizeof message);
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    got = ff_recvmsg(sock, &message, 0);
    if (got < 0)
        return 0;
    piece.iov_len = (size_t)got;
    ff_sendmsg(sock, &message, 0);
    return 1;
}

static int loop(void *arg)
{
    struct kevent event;
    (void)arg;
    if (ff_kevent(kq, NULL, 0, &event, 1, NULL) == 1)
        while (echo_one())
            ;
    return 0;
}

int main(int argc, char *argv[])
{
    int on = 1;
    struct sockaddr_in address;
    struct kevent change;

    ff_init(argc, argv);
    sock = ff_socket(AF_INET, SOCK_DGRAM, 0);
    if (sock < 0)
        fail("ff_socket");
    ff_ioctl(sock, FIONBIO, &on);
    if (ff_setsockopt(sock, IPPROTO_IP, BSD_IP_RECVDSTADDR, &on, sizeof on) < 0)
        fail("IP_RECVDSTADDR");
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(7);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    if (ff_bind(sock, (struct linux_sockaddr *)&address, sizeof address) < 0)
        fail("ff_bind");
    kq = ff_kqueue();
    EV_SET(&change, sock, EVFILT_READ, EV_ADD, 0, 0, NULL);
    if (ff_kevent(kq, &change, 1, NULL, 0, NULL) < 0)
        fail("ff_kevent");
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    ff_run(loop, NULL);
    return 0;
}
