/* A client and a server of one process that use each group of the functions as programs for F-Stack
 * do, inside ff_run. STACK is the stack's address, FOLDER the place of the log. Says what went
 * otherwise, and ends with 1 then. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ff_config.h"
#include "ff_api.h"
#include "ff_dpdk_if.h"
#include "ff_epoll.h"
#include "ff_host_interface.h"
#include "ff_log.h"
#include "ff_memory.h"

#define MAX_EVENTS 512
#define TURNS_MAX 10000
#define SENT "helloabcdeabcdexyzuvw"
#define CHAIN (62 * 64)
#define CHECK(x)                                                              \
    do {                                                                      \
        if (!(x)) {                                                           \
            printf("line %d: %s, errno %d\n", __LINE__, #x, errno);           \
            failures++;                                                       \
        }                                                                     \
    } while (0)

static int failures, turns, listener, client, server = -1, kq, ep;
static enum { CONNECTING, ACCEPTED, SENDING, CLOSED } step;
static struct sockaddr_in address;

static void *read_some(void *arg)
{
    char bytes[10];
    return (void *)(long)ff_read(*(int *)arg, bytes, sizeof bytes);
}

static void copy_event(void **cursor, struct kevent *event)
{
    struct kevent *at = (struct kevent *)*cursor;
    *at = *event;
    *cursor = at + 1;
}

/* SO_GET_FILTER: its length is a number of instructions. */
static void ask_for_filter(void)
{
    struct sock_filter code[2] = {{BPF_LD | BPF_IMM, 0, 0, 7}, {BPF_RET | BPF_K, 0, 0, 9}};
    struct sock_fprog filter = {2, code};
    int datagrams = ff_socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t len = 0;
    CHECK(ff_setsockopt(datagrams, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
    CHECK(ff_getsockopt(datagrams, SOL_SOCKET, SO_GET_FILTER, code, &len) == 0 && len == 2);
    len = 1;
    CHECK(ff_getsockopt(datagrams, SOL_SOCKET, SO_GET_FILTER, code, &len) == -1);
    CHECK(errno == EINVAL && len == 1);
    CHECK(ff_getsockopt(datagrams, SOL_SOCKET, SO_GET_FILTER, code, (len = 9, &len)) == 0);
    CHECK(len == 2 && code[0].k == 7);
    CHECK(ff_close(datagrams) == 0);
}

static void ask_for_options(void)
{
    int on = 1, error = 77;
    struct tcp_info info;
    struct sockaddr_in name;
    socklen_t len = sizeof error;
    CHECK(ff_getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    CHECK(ff_setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    len = sizeof info;
    CHECK(ff_getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
          info.tcpi_state == TCP_ESTABLISHED);
    len = sizeof name;
    CHECK(ff_getpeername(server, (struct linux_sockaddr *)&name, &len) == 0);
    CHECK(name.sin_addr.s_addr == address.sin_addr.s_addr);
    len = sizeof name;
    CHECK(ff_getsockname(server, (struct linux_sockaddr *)&name, &len) == 0 &&
          name.sin_port == htons(80));
    CHECK(ff_ioctl(server, FIONBIO, &on) == 0 && (ff_fcntl(server, F_GETFL, 0) & O_NONBLOCK));
    CHECK(ff_fcntl(server, F_SETFL, O_NONBLOCK) == 0);
    CHECK(ff_read(server, &error, 4) == -1 && errno == EAGAIN);
}

static void send_in_every_way(void)
{
    struct iovec vec[2] = {{(void *)"ab", 2}, {(void *)"cde", 3}};
    struct msghdr message;
    struct ff_zc_mbuf chain;
    char piece[64];
    int i;
    CHECK(ff_write(client, "hello", 5) == 5);
    CHECK(ff_writev(client, vec, 2) == 5);
    memset(&message, 0, sizeof message);
    message.msg_iov = vec;
    message.msg_iovlen = 2;
    CHECK(ff_sendmsg(client, &message, 0) == 5);
    CHECK(ff_send(client, "xyz", 3, 0) == 3);
    CHECK(ff_sendto(client, "uvw", 3, 0, NULL, 0) == 3);
    CHECK(ff_zc_mbuf_get(NULL, 1) == -1);
    CHECK(ff_zc_mbuf_get(&chain, 4000) == 0);
    memset(piece, 'z', sizeof piece);
    for (i = 0; i < CHAIN / 64; i++)
        CHECK(ff_zc_mbuf_write(&chain, piece, 64) == 64);
    CHECK(ff_write(client, chain.bsd_mbuf, CHAIN) == CHAIN);
}

static void wait_in_every_way(void)
{
    struct kevent change, answer;
    struct epoll_event event;
    struct pollfd polled;
    struct timeval none = {0, 0};
    fd_set writable;
    EV_SET(&change, server, EVFILT_READ, EV_ADD | EV_CLEAR, 0, 0, NULL);
    CHECK(ff_kevent(kq, &change, 1, NULL, 0, NULL) == 0);
    EV_SET(&change, 7777, EVFILT_READ, EV_ADD, 0, 0, NULL);
    CHECK(ff_kevent(kq, &change, 1, NULL, 0, NULL) == -1 && errno == EBADF);
    EV_SET(&change, server, EVFILT_WRITE, EV_DELETE, 0, 0, NULL);
    CHECK(ff_kevent(kq, &change, 1, &answer, 1, NULL) == 1);
    CHECK((answer.flags & EV_ERROR) && answer.data == ff_ENOENT);
    event.events = EPOLLIN | EPOLLET;
    event.data.fd = server;
    CHECK(ff_epoll_ctl(ep, EPOLL_CTL_ADD, server, &event) == 0);
    polled.fd = client;
    polled.events = POLLOUT;
    CHECK(ff_poll(&polled, 1, 0) == 1 && polled.revents == POLLOUT);
    FD_ZERO(&writable);
    FD_SET(client, &writable);
    CHECK(ff_select(client + 1, NULL, &writable, NULL, &none) == 1);
}

static void copy_descriptors(void)
{
    struct timeval now;
    int copy = ff_dup(server);
    CHECK(copy >= 0 && ff_fdisused(copy) == 1 && ff_fdisused(9999) == 0);
    CHECK(ff_dup2(server, copy) == copy);
    CHECK(ff_close(copy) == 0);
    CHECK(ff_getmaxfd() > 100);
    CHECK(ff_gettimeofday(&now, NULL) == 0 && now.tv_sec > 1000000);
}

static void receive(void)
{
    struct epoll_event events[4];
    char bytes[5000];
    int waiting = 0;
    if (ff_ioctl(server, FIONREAD, &waiting) != 0 || waiting < (int)strlen(SENT) + CHAIN)
        return;
    CHECK(ff_epoll_wait(ep, events, 4, 0) == 1 && events[0].data.fd == server &&
          (events[0].events & EPOLLIN));
    CHECK(ff_recv(server, bytes, sizeof bytes, 0) == waiting);
    CHECK(memcmp(bytes, SENT "zz", strlen(SENT) + 2) == 0);
    CHECK(ff_close(client) == 0);
    step = CLOSED;
}

static void on_event(struct kevent *event)
{
    if ((int)event->ident == listener && server < 0) {
        CHECK(event->data == 1);
        server = ff_accept(listener, NULL, NULL);
        CHECK(server >= 0);
        step = ACCEPTED;
    }
    if ((int)event->ident == server && step == CLOSED && (event->flags & EV_EOF)) {
        CHECK(ff_close(server) == 0);
        ff_dpdk_stop();
    }
}

static int loop(void *arg)
{
    struct kevent events[8];
    int i, n = ff_kevent_do_each(kq, NULL, 0, events, 8, NULL, copy_event);
    (void)arg;
    CHECK(n >= 0);
    for (i = 0; i < n; i++)
        if (events[i].filter == EVFILT_READ)
            on_event(&events[i]);
    if (step == ACCEPTED) {
        ask_for_filter();
        ask_for_options();
        send_in_every_way();
        wait_in_every_way();
        copy_descriptors();
        step = SENDING;
    } else if (step == SENDING) {
        receive();
    }
    if (++turns > TURNS_MAX) {
        printf("nothing happens any more at step %d\n", step);
        failures++;
        ff_stop_run();
    }
    return 0;
}

static void ask_the_host(void)
{
    static const int monotonic[] = {ff_CLOCK_MONOTONIC, ff_CLOCK_MONOTONIC_FAST};
    uint16_t process = 9, queue = 9, queues = 9, table = 9;
    struct timespec now;
    int i;
    char *page = (char *)ff_mmap(NULL, 4096, ff_PROT_READ | ff_PROT_WRITE,
                                 ff_MAP_PRIVATE | ff_MAP_ANON, -1, 0);
    CHECK(page != ff_MAP_FAILED);
    page[4095] = 1;
    CHECK(ff_munmap(page, 4096) == 0);
    for (i = 0; i < 2; i++) {
        uint64_t before, at;
        int64_t seconds = 0;
        long rest = 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
        before = (uint64_t)now.tv_sec * ff_NSEC_PER_SEC + (uint64_t)now.tv_nsec;
        ff_clock_gettime(monotonic[i], &seconds, &rest);
        at = (uint64_t)seconds * ff_NSEC_PER_SEC + (uint64_t)rest;
        CHECK(before <= at && at <= ff_clock_gettime_ns(monotonic[i]));
        CHECK(ff_clock_gettime_ns(monotonic[i]) <= ff_get_tsc_ns());
    }
    CHECK(ff_rss_self_queue_info(&process, &queue, &queues, &table) == 0);
    CHECK(process == 0 && queue == 0 && queues == 1 && table == 0);
    CHECK(strcmp(ff_IF_NAME, "f-stack-%d") == 0 && DISPATCH_RING_SIZE == 2048);
}

static void listen_and_connect(void)
{
    struct kevent change;
    int on = 1;
    bzero(&address, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(80);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    listener = ff_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(ff_ioctl(listener, FIONBIO, &on) == 0);
    CHECK(ff_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(ff_bind(listener, (struct linux_sockaddr *)&address, sizeof address) == 0);
    CHECK(ff_listen(listener, MAX_EVENTS) == 0);
    EV_SET(&change, listener, EVFILT_READ, EV_ADD, 0, MAX_EVENTS, NULL);
    CHECK(ff_kevent(kq, &change, 1, NULL, 0, NULL) == 0);
    EV_SET(&change, 1, EVFILT_TIMER, EV_ADD, 0, 10, NULL);
    CHECK(ff_kevent(kq, &change, 1, NULL, 0, NULL) == 0);
    client = ff_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(ff_ioctl(client, FIONBIO, &on) == 0);
    inet_pton(AF_INET, getenv("STACK"), &address.sin_addr);
    CHECK(ff_connect(client, (struct linux_sockaddr *)&address, sizeof address) == -1 &&
          errno == EINPROGRESS);
}

int main(int argc, char *argv[])
{
    pthread_t thread;
    void *result;
    int pair[2];
    CHECK(ff_socket(AF_INET, SOCK_STREAM, 0) == -1);
    CHECK(ff_init(argc, argv) == 0);
    CHECK(chdir(getenv("FOLDER")) == 0);
    CHECK(ff_log_open_set() == 0);
    ff_log(FF_LOG_INFO, FF_LOGTYPE_FSTACK_APP, "process %d\n", ff_global_cfg.dpdk.proc_id);
    ff_log_close();
    kq = ff_kqueue();
    ep = ff_epoll_create(0);
    CHECK(kq > 0 && ep > 0);
    CHECK(ff_socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(ff_write(pair[0], "abc", 3) == 3);
    CHECK(ff_pthread_create(&thread, NULL, read_some, &pair[1]) == 0);
    CHECK(ff_pthread_join(thread, &result) == 0 && (long)result == 3);
    ask_the_host();
    listen_and_connect();
    ff_dpdk_run(loop, NULL);
    return failures != 0;
}
