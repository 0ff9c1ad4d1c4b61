/* Calls of the library in random order with random arguments, for SECONDS_LONG seconds from
 * SEED; the first of them before ff_init. Pointers are NULL or point to enough memory; everything
 * else is what comes. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ff_host_interface.h"
#include "slipstack.h"

enum { ROOM = 65536, DESCRIPTORS = 64, FREEBSD_SO_LINGER = 0x80 };

static uint64_t state;
static int opened[DESCRIPTORS], lowest;
static time_t end;
static unsigned long calls;
/* Large enough for any number of elements that is passed. */
static char *room;

static uint64_t any(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static unsigned below(unsigned bound) { return (unsigned)(any() % bound); }

static int number(void)
{
    static const int edges[] = {
        -1, 0, 1, 2, 4, 8, 16, 28, 255, 4096, 65535, 0x7fffffff, -0x7fffffff - 1};
    return below(3) ? edges[below(sizeof edges / sizeof *edges)] : (int)below(80);
}

static int fd(void)
{
    /* Those below `lowest` are the program's own; numbers that nobody has fail. */
    return below(16) ? opened[below(DESCRIPTORS)] : (int)(below(2) ? 0x7fffffff : (unsigned)-1);
}

static void keep(int made)
{
    int *place = &opened[below(DESCRIPTORS)];
    if (made < lowest)
        return;
    if (*place >= 0)
        ff_close(*place);
    *place = made;
}

static void *memory(void) { return below(12) ? room : NULL; }

static struct linux_sockaddr *address(void)
{
    struct sockaddr_in *in = (struct sockaddr_in *)room;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)room;
    if (below(8) == 0)
        return NULL;
    memset(room, (int)below(3) ? 0 : (int)any(), 128);
    in->sin_family = (sa_family_t)(below(6) ? AF_INET : number());
    in->sin_port = htons((uint16_t)(below(4) ? 1000 + below(8) : any()));
    in->sin_addr.s_addr = below(3) ? inet_addr("127.0.0.1") : (in_addr_t)any();
    if (below(4) == 0) {
        six->sin6_family = below(2) ? AF_INET6 : AF_INET6_FREEBSD;
        six->sin6_addr = in6addr_loopback;
    }
    return (struct linux_sockaddr *)room;
}

static socklen_t address_len(void) { return below(3) ? 16 : below(2) ? 28 : (socklen_t)below(130); }

static struct msghdr *message(void)
{
    struct msghdr *head = (struct msghdr *)(room + 4096);
    struct iovec *vec = (struct iovec *)(room + 8192);
    unsigned i;
    if (below(12) == 0)
        return NULL;
    for (i = 0; i < 8; i++) {
        vec[i].iov_base = room + 16384;
        vec[i].iov_len = below(9000);
    }
    for (i = 0; i < 256; i++)
        room[12288 + i] = (char)any();
    memset(head, 0, sizeof *head);
    head->msg_name = below(2) ? address() : NULL;
    head->msg_namelen = head->msg_name ? address_len() : 0;
    head->msg_iov = vec;
    head->msg_iovlen = below(9);
    head->msg_control = below(2) ? room + 12288 : NULL;
    head->msg_controllen = head->msg_control ? below(257) : 0;
    return head;
}

static void *thread(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)ff_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
}

static void each(void **cursor, struct kevent *event) { *(char **)cursor += event->filter ? 1 : 2; }

static struct kevent *changes(void)
{
    struct kevent *change = (struct kevent *)(room + 32768);
    int i;
    for (i = 0; i < 4; i++)
        EV_SET(&change[i], (uintptr_t)fd(), (short)(below(8) ? -(int)below(14) : number()),
               (unsigned short)any(), (unsigned)any(), (int64_t)(below(2) ? below(100) : any()),
               room);
    return below(12) ? change : NULL;
}

static void make(void)
{
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, 0, 77};
    static const int families[] = {AF_INET, AF_INET6, AF_INET6_FREEBSD, AF_UNIX, 99};
    struct timespec soon = {0, 0};
    pthread_t id;
    void *result;
    int two[2];
    switch (below(8)) {
    case 0: keep(ff_kqueue()); break;
    case 1: keep(ff_epoll_create(number())); break;
    case 2: keep(ff_dup(fd())); break;
    case 3: keep(ff_accept4(fd(), NULL, NULL, SOCK_NONBLOCK)); break;
    case 4:
        if (ff_socketpair(AF_UNIX, (SOCK_STREAM | SOCK_NONBLOCK), 0, two) == 0) {
            keep(two[0]);
            keep(two[1]);
        }
        break;
    case 5:
        if (below(50) == 0 && ff_pthread_create(&id, NULL, thread, NULL) == 0 &&
            ff_pthread_join(id, &result) == 0)
            keep((int)(intptr_t)result);
        break;
    default:
        keep(ff_socket(families[below(below(2) ? 2 : 5)],
                       kinds[below(below(2) ? 2 : 5)] | SOCK_NONBLOCK, below(8) ? 0 : number()));
    }
    ff_kevent(fd(), changes(), (int)below(5), (struct kevent *)memory(), (int)below(8), &soon);
}

static void name(void)
{
    socklen_t len = address_len();
    socklen_t *lens = below(8) ? &len : NULL;
    switch (below(10)) {
    case 0: case 1: ff_bind(fd(), address(), len); break;
    case 2: case 3: ff_connect(fd(), address(), len); break;
    case 4: ff_listen(fd(), number()); break;
    case 5: keep(ff_accept(fd(), (struct linux_sockaddr *)memory(), lens)); break;
    case 6: ff_getpeername(fd(), (struct linux_sockaddr *)memory(), lens); break;
    case 7: ff_getsockname(fd(), (struct linux_sockaddr *)memory(), lens); break;
    case 8: ff_shutdown(fd(), number()); break;
    default:
        ff_route_ctl((enum FF_ROUTE_CTL)below(4), (enum FF_ROUTE_FLAG)below(3), address(),
                     address(), address());
    }
}

static void options(void)
{
    static const int levels[] = {SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6, IPPROTO_UDP};
    int level = below(16) ? levels[below(5)] : number();
    socklen_t len = below(2) ? 4 : below(300);
    int option = number(), value = number();
    memcpy(room, &value, sizeof value);
    /* Closing would wait, as on Linux and FreeBSD. */
    if (option == SO_LINGER || option == FREEBSD_SO_LINGER)
        option = SO_ERROR;
    switch (below(5)) {
    case 0: ff_getsockopt(fd(), level, option, memory(), below(12) ? &len : NULL); break;
    case 1: ff_setsockopt(fd(), level, option, memory(), len); break;
    case 2: ff_setsockopt_freebsd(fd(), below(4) ? level : 0xffff, option, memory(), len); break;
    case 3: ff_getsockopt_freebsd(fd(), below(4) ? level : 0xffff, option, memory(), &len); break;
    default: ff_ioctl(fd(), below(2) ? FIONREAD : any(), memory());
    }
    /* A descriptor that blocks would end the run. */
    value = 1;
    for (len = 0; len < DESCRIPTORS; len++)
        if (opened[len] >= 0 && below(8) == 0)
            ff_ioctl(opened[len], FIONBIO, &value);
}

/* Buffers live on from call to call, so that they are used and given back twice. */
static void use_buffers(void)
{
    static struct ff_zc_mbuf chains[4];
    struct ff_zc_mbuf *chain = below(12) ? &chains[below(4)] : NULL;
    struct iovec place;
    void *at;
    int len, on = 1, from = fd();
    struct iovec vec;
    switch (below(9)) {
    case 8:
        /* To calls that take bytes: an error, and nothing else. */
        vec.iov_base = chain ? chain->bsd_mbuf : NULL;
        vec.iov_len = below(1000);
        ff_ioctl(from, FIONBIO, &on);
        ff_send(from, vec.iov_base, vec.iov_len, MSG_DONTWAIT);
        ff_recv(from, vec.iov_base, vec.iov_len, MSG_DONTWAIT);
        ff_writev(from, &vec, 1);
        ff_readv(from, &vec, 1);
        break;
    case 0: ff_zc_mbuf_get(chain, number() % 200000); break;
    case 1:
        if (slipstack_zc_room(chain, below(12) ? &place : NULL) > 0) {
            memset(place.iov_base, 'r', place.iov_len);
            slipstack_zc_filled(chain, below(2) ? place.iov_len : (size_t)number());
        }
        break;
    case 2: ff_zc_mbuf_write(chain, room, number() % ROOM); break;
    case 3:
        ff_ioctl(from, FIONBIO, &on);
        ff_zc_send(from, chain ? chain->bsd_mbuf : memory(), below(2) ? below(200000) : any());
        break;
    case 4:
        ff_ioctl(from, FIONBIO, &on);
        ff_zc_recv(from, chain, below(4) ? below(100000) : any());
        break;
    case 5:
        if (ff_zc_mbuf_segment(chain, &at, below(12) ? &len : NULL) > 0)
            memcpy(room, at, (size_t)len < ROOM ? (size_t)len : ROOM);
        break;
    case 6: ff_zc_mbuf_read(chain, memory(), below(ROOM)); break;
    default:
        if (below(2))
            ff_zc_recv_free(chain);
        else
            slipstack_zc_free(chain);
    }
}

static void move_bytes(void)
{
    struct ff_zc_mbuf chain = {0, 0, 0, 0};
    struct slipstack_segment segment = {{{0, 0}, {0, 0}}, 0};
    struct msghdr *head = message();
    struct timespec none = {0, 0};
    socklen_t len = address_len();
    int flags = (number() & ~(MSG_OOB)) | MSG_DONTWAIT;
    switch (below(14)) {
    case 0: ff_send(fd(), memory(), below(ROOM), flags); break;
    case 1: ff_recv(fd(), memory(), below(ROOM), flags); break;
    case 2: ff_sendto(fd(), memory(), below(ROOM), flags, address(), len); break;
    case 3:
        ff_recvfrom(fd(), memory(), below(ROOM), flags, (struct linux_sockaddr *)memory(), &len);
        break;
    case 4: ff_sendmsg(fd(), head, flags); break;
    case 5: ff_recvmsg(fd(), head, flags); break;
    case 6: ff_sendmsg(fd(), head, flags); break;
    case 7: if (head) ff_recvmsg(fd(), head, MSG_DONTWAIT | MSG_ERRQUEUE); break;
    case 8:
        if (ff_zc_mbuf_get(below(12) ? &chain : NULL, number() % 200000) == 0) {
            ff_zc_mbuf_write(&chain, room, number() % ROOM);
            if (below(2))
                ff_write(fd(), chain.bsd_mbuf, below(100));
            /* Fails if the write took it, and the second time. */
            slipstack_zc_free(&chain);
            slipstack_zc_free(&chain);
        }
        break;
    case 9: if (head) ff_sendmsg(fd(), head, MSG_DONTWAIT | MSG_ZEROCOPY); break;
    case 10: ff_fdisused(number()); ff_getmaxfd(); break;
    case 11:
        if (slipstack_recv_take(fd(), below(ROOM), below(12) ? &segment : NULL) > 0 && below(2))
            slipstack_recv_give(fd(), &segment);
        segment.at = below(2) ? below(ROOM) : any();
        slipstack_recv_give(fd(), below(12) ? &segment : NULL);
        break;
    case 12:
        slipstack_send_room(fd(), below(2) ? below(ROOM) : any(),
                            below(12) ? segment.pieces : NULL);
        slipstack_send_done(fd(), below(ROOM));
        slipstack_recv_look(fd(), below(12) ? segment.pieces : NULL);
        slipstack_recv_done(fd(), below(12) ? segment.pieces : NULL, below(ROOM));
        break;
    default: ff_kevent_do_each(fd(), changes(), (int)below(5), room, (int)below(4), &none, each);
    }
}

static void wait_a_moment(void)
{
    struct pollfd polled[4];
    struct epoll_event event;
    struct timespec none = {0, 0};
    int i;
    for (i = 0; i < 4; i++) {
        polled[i].fd = fd();
        polled[i].events = (short)any();
    }
    event.events = (uint32_t)any();
    event.data.u64 = any();
    switch (below(5)) {
    case 0: ff_poll(polled, below(5), 0); break;
    case 1: ff_epoll_ctl(fd(), number(), fd(), below(12) ? &event : NULL); break;
    case 2: ff_epoll_ctl(fd(), EPOLL_CTL_ADD, fd(), &event); break;
    case 3: ff_epoll_wait(fd(), (struct epoll_event *)memory(), (int)below(64) - 4, 0); break;
    default: ff_kevent(fd(), NULL, 0, (struct kevent *)memory(), (int)below(64), &none);
    }
}

static int see(void *data, uint16_t *len, uint16_t queue, uint16_t queues)
{
    unsigned char *bytes = (unsigned char *)data;
    (void)queues;
    if (below(4) && *len > 0)
        bytes[below(*len)] = (unsigned char)any();
    if (below(8) == 0)
        *len = (uint16_t)(below(2) ? below(2048) : any());
    return below(4) ? number() : queue;
}

static int see_with_context(void *data, uint16_t *len, uint16_t queue, uint16_t queues,
                            struct ff_dispatcher_context context)
{
    return context.vlan.stripped ? FF_DISPATCH_ERROR : see(data, len, queue, queues);
}

static int choose(uint16_t family, void *to, uint16_t port, void *from)
{
    memset(from, (int)any(), family == AF_INET ? 4 : 16);
    return port == 0 || to == NULL ? -1 : number();
}

static void meet_frames(void)
{
    struct slipstack_worker_counts counts;
    switch (below(7)) {
    case 0: ff_regist_packet_dispatcher(below(3) ? NULL : see); break;
    case 1: ff_regist_packet_dispatcher_context(below(3) ? NULL : see_with_context); break;
    case 2: ff_regist_pcblddr_fun(below(2) ? NULL : choose); break;
    case 3: ff_dpdk_raw_packet_send(memory(), number(), (uint16_t)number()); break;
    case 4: slipstack_worker_counts((unsigned)number(), below(12) ? &counts : NULL); break;
    case 5:
        if (below(20) == 0)
            slipstack_dispatch_workers(below(4) ? below(4) : (unsigned)number(),
                                       below(4) ? see : NULL);
        break;
    default: ff_get_traffic(below(12) ? room : NULL);
    }
}

static void call_the_rest(void)
{
    static const int commands[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_GETOWN};
    struct timeval none = {0, 0};
    struct iovec vec[2] = {{room, below(ROOM)}, {memory(), below(100)}};
    int i, ints[4], command = below(8) ? commands[below(6)] : 4000 + number() % 1000;
    size_t len = below(ROOM);
    for (i = 0; i < 4; i++)
        ints[i] = (int)below(2) ? (int)below(8) : number();
    switch (below(10)) {
    case 0: ff_dup2(fd(), fd()); break;
    case 1:
        i = ff_fcntl(fd(), command, (int)below(1000));
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
            keep(i);
        break;
    case 2:
        ff_select(below(2) ? (int)below(1100) : number(), (fd_set *)memory(), (fd_set *)memory(),
                  (fd_set *)memory(), &none);
        break;
    case 3:
        ff_sysctl(below(12) ? ints : NULL, below(5), memory(), below(12) ? &len : NULL, NULL, 0);
        break;
    case 4: ff_readv(fd(), vec, number()); break;
    case 5: ff_gettimeofday(below(12) ? &none : NULL, NULL); break;
    case 6:
        ff_rss_check(memory(), (uint32_t)any(), (uint32_t)any(), 1, (uint16_t)any());
        ff_rss_self_queue_info((uint16_t *)memory(), NULL, (uint16_t *)memory(), NULL);
        ff_clock_gettime(number(), (int64_t *)memory(), (long *)memory());
        break;
    case 7:
        ff_rtioctl(number(), memory(), (unsigned *)memory(), below(ROOM));
        ff_ngctl(number(), memory());
        break;
    case 8: ff_free(ff_realloc(ff_malloc(below(ROOM)), below(ROOM))); break;
    default: ff_log_set_level((uint32_t)number(), (uint32_t)number());
    }
}

static void call_in_child(void)
{
    int i, status;
    pid_t child = fork();
    if (child == 0) {
        for (i = 0; i < 20; i++)
            below(2) ? move_bytes() : wait_a_moment();
        _exit(0);
    }
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) {
        printf("a child ended by %x\n", (unsigned)status);
        exit(1);
    }
}

static void call_something(void)
{
    int victim;
    alarm(5);
    calls++;
    switch (below(8)) {
    case 0: make(); break;
    case 1: name(); break;
    case 2: options(); break;
    case 3: below(2) ? move_bytes() : use_buffers(); break;
    case 4: wait_a_moment(); break;
    case 5: call_the_rest(); break;
    case 6: below(300) ? meet_frames() : call_in_child(); break;
    default:
        victim = (int)below(DESCRIPTORS);
        if (opened[victim] >= 0 && below(4) == 0) {
            ff_close(opened[victim]);
            opened[victim] = -1;
        }
    }
}

static int loop(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 1000; i++)
        call_something();
    if (below(100) == 0)
        ff_run(loop, NULL);
    if (time(NULL) >= end)
        ff_stop_run();
    return 0;
}

int main(int argc, char *argv[])
{
    int i;
    state = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 0x9e3779b97f4a7c15;
    end = time(NULL) + (getenv("SECONDS_LONG") ? atoi(getenv("SECONDS_LONG")) : 3);
    room = (char *)calloc(1, ROOM * 2);
    for (i = 0; i < DESCRIPTORS; i++)
        opened[i] = -1;
    /* Of the kernel's socket pairs; the stack's sockets send none. */
    signal(SIGPIPE, SIG_IGN);
    lowest = dup(0);
    for (i = 0; i < 2000; i++)
        call_something();
    for (i = 0; i < DESCRIPTORS; i++)
        if (opened[i] >= 0)
            ff_close(opened[i]), opened[i] = -1;
    ff_run(loop, NULL);
    if (ff_init(argc, argv) != 0 || ff_init(argc, argv) == 0)
        return 1;
    lowest = ff_kqueue();
    ff_run(loop, NULL);
    printf("%lu calls\n", calls);
    return 0;
}
