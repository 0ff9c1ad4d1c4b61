/* What the C library says to calls that make no sense. Each line is a call that was answered as it
 * should be. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slipstack.h"

static int failures;

static void expect(long result, int error, const char *what)
{
    int is_right = result == -1 && errno == error;
    failures += !is_right;
    printf("%s: %s (%ld, errno %d)\n", is_right ? "ok" : "FAILED", what, result, errno);
    errno = 0;
}

static void check(int holds, const char *what)
{
    failures += !holds;
    printf("%s: %s (errno %d)\n", holds ? "ok" : "FAILED", what, errno);
}

static void before(void)
{
    struct kevent event;
    char byte = 0;
    expect(ff_socket(AF_INET, SOCK_STREAM, 0), ENETDOWN, "socket before ff_init");
    expect(ff_kqueue(), ENETDOWN, "kqueue before ff_init");
    expect(ff_epoll_create(0), ENETDOWN, "epoll_create before ff_init");
    expect(ff_listen(700, 1), EBADF, "listen before ff_init");
    expect(ff_write(700, &byte, 1), EBADF, "write before ff_init");
    expect(ff_kevent(700, NULL, 0, &event, 1, NULL), EBADF, "kevent before ff_init");
    ff_run(NULL, NULL);
    check(errno == ENETDOWN, "ff_run before ff_init");
    ff_stop_run();
}

static int stops(void *arg)
{
    errno = 0;
    ff_run(NULL, arg);
    check(errno == EBUSY, "ff_run inside ff_run");
    ff_stop_run();
    return 0;
}

static void *sum(void *arg)
{
    *(int *)arg += 1;
    return arg;
}

static void others(void)
{
    struct ff_zc_mbuf m;
    struct kevent event;
    struct timeval now = {0, 0};
    uint64_t traffic[6] = {0};
    int pair[2], count = 0, numbers[2] = {6, 7}, page = 0;
    size_t len = sizeof page;
    pthread_t thread;
    void *result;
    expect(ff_zc_mbuf_get(NULL, 10), EINVAL, "a buffer for nobody");
    check(ff_zc_mbuf_get(&m, 10) == 0, "a buffer");
    expect(ff_zc_mbuf_write(&m, "12345678901", 11), EINVAL, "too much for it");
    check(ff_zc_mbuf_write(&m, "1234567890", 10) == 10, "as much as it holds");
    check(slipstack_zc_free(&m) == 0, "given back");
    check(ff_zc_mbuf_get(&m, 10) == 0, "a buffer for calls that take bytes");
    struct iovec vec = {m.bsd_mbuf, 10};
    struct msghdr message;
    memset(&message, 0, sizeof message);
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    expect(ff_send(1, m.bsd_mbuf, 10, 0), EFAULT, "ff_send of a buffer");
    expect(ff_writev(1, &vec, 1), EFAULT, "ff_writev of one");
    expect(ff_sendmsg(1, &message, 0), EFAULT, "ff_sendmsg of one");
    expect(ff_read(0, m.bsd_mbuf, 10), EFAULT, "ff_read into one");
    expect(ff_readv(0, &vec, 1), EFAULT, "ff_readv into one");
    expect(ff_recvmsg(0, &message, 0), EFAULT, "ff_recvmsg into one");
    check(slipstack_zc_free(&m) == 0, "given back, too");
    expect(slipstack_zc_free(&m), EINVAL, "given back twice");
    expect(ff_write(1, m.bsd_mbuf, 10), EINVAL, "sent after that");
    expect(ff_zc_mbuf_write(&m, "1", 1), EINVAL, "filled after that");
    int kq = ff_kqueue();
    expect(ff_kevent(kq, NULL, 1, NULL, 0, NULL), EFAULT, "changes nowhere");
    expect(ff_kevent(kq, NULL, 0, NULL, 1, NULL), EFAULT, "events nowhere");
    expect(ff_kevent(kq, NULL, -1, &event, 1, NULL), EINVAL, "fewer changes than none");
    expect(ff_epoll_wait(kq, NULL, 0, 0), EINVAL, "room for no event");
    expect(ff_poll(NULL, 5, 0), EFAULT, "poll of nothing there");
    expect(ff_close(kq + 500), EBADF, "close of what is not open");
    expect(ff_dup(kq + 500), EBADF, "dup of what is not open");
    expect(ff_route_ctl(FF_ROUTE_ADD, FF_RTF_HOST, NULL, NULL, NULL), EINVAL, "a route to nowhere");
    expect(ff_dpdk_raw_packet_send(&m, 3, 0), EINVAL, "a frame that is none");
    check(ff_sysctl(numbers, 2, &page, &len, NULL, 0) == 0 && page == getpagesize(), "sysctl");
    check(ff_gettimeofday(&now, NULL) == 0 && now.tv_sec != 0, "the time");
    check(ff_socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && ff_write(pair[0], "x", 1) == 1,
          "a pair");
    check(ff_pthread_create(&thread, NULL, sum, &count) == 0 &&
              ff_pthread_join(thread, &result) == 0 && count == 1,
          "a thread");
    check(ff_getmaxfd() > 100 && ff_fdisused(kq) == 1 && ff_fdisused(pair[0]) == 0, "numbers");
    ff_get_traffic(traffic);
    ff_log_set_level(FF_LOGTYPE_FSTACK_APP, FF_LOG_INFO);
    check(ff_log_open_set() == 0 &&
              ff_log(FF_LOG_INFO, FF_LOGTYPE_FSTACK_APP, "%d lines\n", 1) == 8,
          "the log");
    ff_log_close();
}

/* PEER gets the datagram that fits. */
static void send_whole(int datagrams)
{
    static char bytes[4000];
    struct sockaddr_in peer;
    const struct linux_sockaddr *name = (const struct linux_sockaddr *)&peer;
    int on = 1, value = 0;
    socklen_t len = sizeof value;
    memset(&peer, 0, sizeof peer);
    peer.sin_family = AF_INET;
    peer.sin_port = htons(7101);
    inet_pton(AF_INET, getenv("PEER"), &peer.sin_addr);
    check(ff_setsockopt(datagrams, IPPROTO_IP, 67, &on, sizeof on) == 0 &&
              ff_getsockopt(datagrams, IPPROTO_IP, 67, &value, &len) == 0 && value == 1,
          "IP_DONTFRAG");
    expect(ff_sendto(datagrams, bytes, sizeof bytes, 0, name, sizeof peer), EMSGSIZE,
           "a datagram that does not fit into a packet");
    check(ff_sendto(datagrams, bytes, 1, 0, name, sizeof peer) == 1, "one that fits");
}

static void sockets(void)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(7100);
    const struct linux_sockaddr *name = (const struct linux_sockaddr *)&address;
    int first = ff_socket(AF_INET, SOCK_STREAM, 0), second = ff_socket(AF_INET, SOCK_STREAM, 0);
    check(ff_bind(first, name, sizeof address) == 0 && ff_listen(first, 5) == 0, "a listener");
    expect(ff_bind(second, name, sizeof address), EADDRINUSE, "its port again");
    address.sin_addr.s_addr = htonl(0x08080808);
    expect(ff_bind(second, name, sizeof address), EADDRNOTAVAIL, "somebody else's address");
    expect(ff_connect(first, name, sizeof address), EISCONN, "connect of a listener");
    expect(ff_bind(second, name, 3), EINVAL, "half an address");
    expect(ff_setsockopt(first, IPPROTO_IP, 67, NULL, 4), EFAULT, "an option without a value");
    expect(ff_accept(second, NULL, NULL), EINVAL, "accept of what does not listen");
    expect(ff_socket(AF_INET, SOCK_RAW, 1), EPROTONOSUPPORT, "a raw socket");
    struct sockaddr_in6 both;
    int third = ff_socket(AF_INET6, SOCK_STREAM, 0);
    memset(&both, 0, sizeof both);
    both.sin6_family = AF_INET6;
    both.sin6_port = htons(7100);
    check(ff_bind(third, (const struct linux_sockaddr *)&both, sizeof both) == 0 &&
              ff_listen(third, 5) == 0,
          "the same port of the other family");
    int on = 1, value = 0;
    socklen_t len = sizeof value;
    send_whole(ff_socket(AF_INET, SOCK_DGRAM, 0));
    check(ff_setsockopt_freebsd(first, 0xffff, 8, &on, sizeof on) == 0 &&
              ff_getsockopt(first, SOL_SOCKET, SO_KEEPALIVE, &value, &len) == 0 && value == 1,
          "SO_KEEPALIVE by FreeBSD's number");
    expect(ff_setsockopt_freebsd(first, 0xffff, 0x7777, &on, sizeof on), ENOPROTOOPT,
           "one that FreeBSD has not");
    ff_close(first);
    ff_close(second);
    expect(ff_listen(second, 1), EBADF, "listen of what was closed");
}

int main(int argc, char *argv[])
{
    if (chdir(getenv("FOLDER")) < 0)
        return 1;
    before();
    check(ff_init(argc, argv) == 0, "ff_init");
    expect(ff_init(argc, argv), EALREADY, "ff_init twice");
    others();
    sockets();
    ff_run(stops, NULL);
    puts(failures == 0 ? "all as they should be" : "some are not");
    return failures != 0;
}
