// Loads the library as packetdrill does and takes a connection through it, in virtual time.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <poll.h>
#include <unistd.h>

#include "interface.h"

static struct packetdrill_interface ifc;
static int listener;

static struct packet receive(long long *at_us) {
    struct packet packet;
    size_t len = sizeof packet;
    CHECK(ifc.netdev_receive(ifc.userdata, &packet, &len, at_us) == 0);
    CHECK(len >= 40);
    return packet;
}

// recvmsg as on Linux: control messages, their length, the sender's and the flags.
static void with_inq(int fd, char *bytes) {
    char control[CMSG_SPACE(sizeof(int))];
    struct sockaddr_in sender;
    struct iovec place = {.iov_base = bytes, .iov_len = 4};
    struct msghdr msg = {.msg_name = &sender,
                         .msg_namelen = sizeof sender,
                         .msg_iov = &place,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof control,
                         .msg_flags = -1};
    CHECK(ifc.recvmsg(ifc.userdata, fd, &msg, 0) == 4);
    CHECK(msg.msg_flags == 0 && msg.msg_namelen == 0);
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    CHECK(cmsg && cmsg->cmsg_level == IPPROTO_TCP && cmsg->cmsg_type == TCP_CM_INQ);
    CHECK(cmsg->cmsg_len == CMSG_LEN(sizeof(int)) && *(int *)CMSG_DATA(cmsg) == 6);
    CHECK(CMSG_NXTHDR(&msg, cmsg) == NULL);
    // There is no room for the message: what is left of the data, and the flag that says so.
    msg.msg_controllen = 8;
    place.iov_len = 100;
    CHECK(ifc.recvmsg(ifc.userdata, fd, &msg, 0) == 6);
    CHECK(msg.msg_flags == MSG_CTRUNC && msg.msg_controllen == 0);
}

// A datagram that is longer than its place, with the time of its arrival, and an ICMP error's
// queue.
static void datagram(void) {
    int on = 1, fd = ifc.socket(ifc.userdata, AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(8081)},
                       peer = {.sin_family = AF_INET};
    own.sin_addr.s_addr = inet_addr("192.168.0.1");
    CHECK(ifc.setsockopt(ifc.userdata, fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
    CHECK(ifc.setsockopt(ifc.userdata, fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0);
    CHECK(ifc.bind(ifc.userdata, fd, (struct sockaddr *)&own, sizeof own) == 0);
    struct {
        struct iphdr ip;
        uint16_t udp[4];
        char data[10];
    } packet = {.ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP}};
    packet.ip.tot_len = htons(38);
    packet.ip.saddr = inet_addr("192.0.2.1");
    packet.ip.daddr = own.sin_addr.s_addr;
    packet.ip.check = htons(sum(&packet.ip, 20, 0));
    packet.udp[0] = htons(4000);
    packet.udp[1] = own.sin_port;
    packet.udp[2] = htons(18);
    CHECK(ifc.netdev_send(ifc.userdata, &packet, 38) == 0);

    char bytes[100], control[256];
    struct iovec place = {.iov_base = bytes, .iov_len = 4};
    struct msghdr msg = {.msg_name = &peer,
                         .msg_namelen = sizeof peer,
                         .msg_iov = &place,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof control};
    CHECK(ifc.recvmsg(ifc.userdata, fd, &msg, 0) == 4);
    CHECK(msg.msg_flags == MSG_TRUNC && msg.msg_namelen == sizeof peer &&
          peer.sin_port == htons(4000));
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    CHECK(cmsg && cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_TIMESTAMP);
    CHECK(cmsg->cmsg_len == CMSG_LEN(sizeof(struct timeval)));

    CHECK(ifc.sendto(ifc.userdata, fd, bytes, 10, 0, (struct sockaddr *)&peer, sizeof peer) == 10);
    // The connection may still have something to say.
    size_t len;
    long long at_us;
    do {
        len = sizeof bytes;
        CHECK(ifc.netdev_receive(ifc.userdata, bytes, &len, &at_us) == 0);
    } while (((struct iphdr *)bytes)->protocol != IPPROTO_UDP);
    CHECK(len == 38);
    // Destination unreachable, port unreachable, with all of the datagram.
    struct {
        struct iphdr ip;
        uint8_t icmp[8];
        char quoted[38];
    } error = {.ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_ICMP}, .icmp = {3, 3}};
    memcpy(error.quoted, bytes, 38);
    error.ip.tot_len = htons(66);
    error.ip.saddr = inet_addr("192.0.2.1");
    error.ip.daddr = own.sin_addr.s_addr;
    error.ip.check = htons(sum(&error.ip, 20, 0));
    uint16_t check = htons(sum(error.icmp, 46, 0));
    memcpy(error.icmp + 2, &check, 2);
    CHECK(ifc.netdev_send(ifc.userdata, &error, 66) == 0);
    msg.msg_controllen = sizeof control;
    place.iov_len = sizeof bytes;
    CHECK(ifc.recvmsg(ifc.userdata, fd, &msg, MSG_ERRQUEUE) == 10);
    CHECK(msg.msg_flags == MSG_ERRQUEUE);
    struct sock_extended_err *why = NULL;
    for (cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg))
        if (cmsg->cmsg_level == IPPROTO_IP && cmsg->cmsg_type == IP_RECVERR)
            why = (void *)CMSG_DATA(cmsg);
    CHECK(why && why->ee_errno == ECONNREFUSED && why->ee_origin == SO_EE_ORIGIN_ICMP &&
          why->ee_code == 3);
    CHECK(ifc.close(ifc.userdata, fd) == 0);
}

// IPv6, at the address that packetdrill has drawn and names in its bind: the first packet that
// leaves is the answer.
static void version6(void (*init)(const char *, struct packetdrill_interface *)) {
    init(NULL, &ifc);
    CHECK(ifc.userdata);
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(8080)};
    CHECK(inet_pton(AF_INET6, "fd3d:fa7b:d17d:1:2:3:4:5", &own.sin6_addr) == 1);
    int fd = ifc.socket(ifc.userdata, AF_INET6, SOCK_STREAM, IPPROTO_TCP);
    CHECK(fd >= 0);
    CHECK(ifc.bind(ifc.userdata, fd, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(ifc.listen(ifc.userdata, fd, 1) == 0);
    struct packet6 {
        struct ip6_hdr ip;
        struct tcphdr tcp;
        uint8_t options[20];
    } packet = {.tcp = {.source = htons(4000),
                        .dest = htons(8080),
                        .doff = 5,
                        .syn = 1,
                        .window = htons(60000)}};
    packet.ip.ip6_vfc = 6 << 4;
    packet.ip.ip6_plen = htons(20);
    packet.ip.ip6_nxt = IPPROTO_TCP;
    packet.ip.ip6_hlim = 64;
    CHECK(inet_pton(AF_INET6, "2001:db8::1", &packet.ip.ip6_src) == 1);
    packet.ip.ip6_dst = own.sin6_addr;
    packet.tcp.check = htons(sum(&packet.ip.ip6_src, 52, IPPROTO_TCP + 20));
    CHECK(ifc.netdev_send(ifc.userdata, &packet, 60) == 0);
    struct packet6 answer;
    size_t len = sizeof answer;
    long long at_us;
    CHECK(ifc.netdev_receive(ifc.userdata, &answer, &len, &at_us) == 0 && len == 64);
    CHECK(answer.ip.ip6_vfc >> 4 == 6 && answer.ip.ip6_nxt == IPPROTO_TCP && answer.tcp.syn &&
          answer.tcp.ack);
    CHECK(memcmp(&answer.ip.ip6_src, &own.sin6_addr, 16) == 0);
    // The answer comes again, and then nothing more ever will: packetdrill would ask for ever after
    // a failure.
    int more = 0;
    do {
        len = sizeof answer;
        CHECK(ifc.netdev_receive(ifc.userdata, &answer, &len, &at_us) == 0);
    } while (len != 0 && ++more < 20);
    CHECK(more == 5 && len == 0);
    ifc.free(ifc.userdata);
}

// The other addresses that packetdrill draws are the stack's too once they are bound.
static void drawn(void (*init)(const char *, struct packetdrill_interface *)) {
    init(NULL, &ifc);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(8082)};
    own.sin_addr.s_addr = inet_addr("192.168.57.9");
    int fd = ifc.socket(ifc.userdata, AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(ifc.bind(ifc.userdata, fd, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(ifc.listen(ifc.userdata, fd, 1) == 0);
    ifc.free(ifc.userdata);
    init("", &ifc);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(8083)};
    CHECK(inet_pton(AF_INET6, "::ffff:192.168.58.9", &mapped.sin6_addr) == 1);
    fd = ifc.socket(ifc.userdata, AF_INET6, SOCK_STREAM, IPPROTO_TCP);
    CHECK(ifc.bind(ifc.userdata, fd, (struct sockaddr *)&mapped, sizeof mapped) == 0);
    // Nobody draws this one.
    CHECK(inet_pton(AF_INET6, "::ffff:203.0.113.1", &mapped.sin6_addr) == 1);
    fd = ifc.socket(ifc.userdata, AF_INET6, SOCK_STREAM, IPPROTO_TCP);
    CHECK(ifc.bind(ifc.userdata, fd, (struct sockaddr *)&mapped, sizeof mapped) == -1 &&
          errno == EADDRNOTAVAIL);
    ifc.free(ifc.userdata);
}

// Flags that are refused: no pointer is null, and each call fails, the clock's too, at which
// packetdrill ends.
static void refused(void (*init)(const char *, struct packetdrill_interface *)) {
    static void *pointers[sizeof ifc / sizeof(void *)];
    struct packetdrill_interface nothing;
    memset(&nothing, 0, sizeof nothing);
    init("no_such_setting=1", &nothing);
    memcpy(pointers, &nothing, sizeof nothing);
    for (size_t i = 1; i < sizeof pointers / sizeof *pointers; i++) CHECK(pointers[i]);
    struct timeval now;
    errno = 0;
    CHECK(nothing.gettimeofday(nothing.userdata, &now, NULL) == -1 && errno == EINVAL);
    CHECK(nothing.socket(nothing.userdata, AF_INET, SOCK_STREAM, 0) == -1 && errno == EINVAL);
    CHECK(nothing.usleep(nothing.userdata, 1) == -1);
    CHECK(nothing.netdev_send(nothing.userdata, &now, sizeof now) == -1);
    size_t len = 0;
    long long at_us;
    CHECK(nothing.netdev_receive(nothing.userdata, NULL, &len, &at_us) == -1);
    nothing.free(nothing.userdata);
}

// A blocking accept and a blocking read, as packetdrill makes them on its second thread.
static void *serve(void *unused) {
    (void)unused;
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    int fd = ifc.accept(ifc.userdata, listener, (struct sockaddr *)&peer, &len);
    CHECK(fd >= 0 && len == sizeof peer && peer.sin_port == htons(4000));
    char bytes[100];
    int on = 1;
    CHECK(ifc.setsockopt(ifc.userdata, fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
    with_inq(fd, bytes);
    struct tcp_info info;
    socklen_t info_len = sizeof info;
    CHECK(ifc.getsockopt(ifc.userdata, fd, IPPROTO_TCP, TCP_INFO, &info, &info_len) == 0);
    CHECK(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_snd_cwnd == 10);
    CHECK(ifc.write(ifc.userdata, fd, bytes, 5) == 5);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    void (*init)(const char *, struct packetdrill_interface *) =
        dlsym(library, "packetdrill_interface_init");
    CHECK(init);
    refused(init);
    init("tcp_timestamps=0", &ifc);
    CHECK(ifc.userdata);

    int reuse = 1;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(8080)};
    own.sin_addr.s_addr = inet_addr("192.168.0.1");
    listener = ifc.socket(ifc.userdata, AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(listener >= 0);
    CHECK(ifc.setsockopt(ifc.userdata, listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) ==
          0);
    CHECK(ifc.bind(ifc.userdata, listener, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(ifc.listen(ifc.userdata, listener, 1) == 0);
    CHECK(ifc.bind(ifc.userdata, 999, (struct sockaddr *)&own, sizeof own) == -1 && errno == EBADF);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);

    struct packet packet;
    long long syn_us, ack_us;
    size_t len = segment(&packet, 1000, 0, "S", 0);
    CHECK(ifc.netdev_send(ifc.userdata, &packet, len) == 0);
    struct packet answer = receive(&syn_us);
    CHECK(answer.tcp.syn && answer.tcp.ack && ntohl(answer.tcp.ack_seq) == 1001);
    uint32_t theirs = ntohl(answer.tcp.seq) + 1;
    CHECK(ifc.usleep(ifc.userdata, 250000) == 0);
    struct timeval now;
    CHECK(ifc.gettimeofday(ifc.userdata, &now, NULL) == 0);
    CHECK(now.tv_sec * 1000000LL + now.tv_usec == syn_us + 250000);
    len = segment(&packet, 1001, theirs, ".", 10);
    CHECK(ifc.netdev_send(ifc.userdata, &packet, len) == 0);
    answer = receive(&ack_us);
    CHECK(ntohl(answer.tcp.ack_seq) == 1011);
    CHECK(ack_us - syn_us >= 250000 && ack_us - syn_us < 300000);
    CHECK(ntohs(answer.ip.tot_len) == 45 || ntohs(answer.ip.tot_len) == 40);
    CHECK(pthread_join(thread, NULL) == 0);
    datagram();
    ifc.free(ifc.userdata);
    version6(init);
    drawn(init);
    puts("the library takes packetdrill's calls");
    return 0;
}
