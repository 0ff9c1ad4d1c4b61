// packetdrill's interface to a stack in a library, and segments to put into it.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>

// The structure's shape is the contract: each member in its place.
struct packetdrill_interface {
    void *userdata;
    void (*free)(void *);
    int (*socket)(void *, int, int, int);
    int (*bind)(void *, int, const struct sockaddr *, socklen_t);
    int (*listen)(void *, int, int);
    int (*accept)(void *, int, struct sockaddr *, socklen_t *);
    int (*connect)(void *, int, const struct sockaddr *, socklen_t);
    ssize_t (*read)(void *, int, void *, size_t);
    ssize_t (*readv)(void *, int, const struct iovec *, int);
    ssize_t (*recv)(void *, int, void *, size_t, int);
    ssize_t (*recvfrom)(void *, int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(void *, int, struct msghdr *, int);
    ssize_t (*write)(void *, int, const void *, size_t);
    ssize_t (*writev)(void *, int, const struct iovec *, int);
    ssize_t (*send)(void *, int, const void *, size_t, int);
    ssize_t (*sendto)(void *, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*sendmsg)(void *, int, const struct msghdr *, int);
    int (*fcntl)(void *, int, int, ...);
    int (*ioctl)(void *, int, unsigned long, ...);
    int (*close)(void *, int);
    int (*shutdown)(void *, int, int);
    int (*getsockopt)(void *, int, int, int, void *, socklen_t *);
    int (*setsockopt)(void *, int, int, int, const void *, socklen_t);
    int (*poll)(void *, struct pollfd *, nfds_t, int);
    int (*netdev_send)(void *, const void *, size_t);
    int (*netdev_receive)(void *, void *, size_t *, long long *);
    int (*usleep)(void *, useconds_t);
    int (*gettimeofday)(void *, struct timeval *, struct timezone *);
    int (*epoll_create)(void *, int);
    int (*epoll_ctl)(void *, int, int, int, struct epoll_event *);
    int (*epoll_wait)(void *, int, struct epoll_event *, int, int);
    int (*pipe)(void *, int[2]);
    int (*splice)(void *, int, loff_t *, int, loff_t *, size_t, unsigned int);
};

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static inline uint16_t sum(const void *bytes, size_t len, uint32_t start) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i + 1 < len; i += 2) start += at[i] << 8 | at[i + 1];
    if (len & 1) start += at[len - 1] << 8;
    while (start >> 16) start = (start & 0xffff) + (start >> 16);
    return ~start;
}

struct packet {
    struct iphdr ip;
    struct tcphdr tcp;
    char data[1400];
} __attribute__((packed));

// Flags are S, ack (.), and o for a SYN's options: an MSS of 1000, SACK and timestamps.
static inline size_t segment(struct packet *packet, uint32_t seq, uint32_t ack, const char *flags,
                             size_t len) {
    static const uint8_t options[] = {2, 4, 1000 >> 8, 1000 & 0xff, 4, 2, 8, 10,
                                      0, 0, 0,         1,           0, 0, 0, 0};
    memset(packet, 0, sizeof *packet);
    if (strchr(flags, 'o')) {
        memcpy(packet->data, options, sizeof options);
        len = sizeof options;
    }
    packet->ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP};
    packet->ip.tot_len = htons(40 + len);
    packet->ip.saddr = inet_addr("192.0.2.1");
    packet->ip.daddr = inet_addr("192.168.0.1");
    packet->ip.check = htons(sum(&packet->ip, 20, 0));
    packet->tcp.source = htons(4000);
    packet->tcp.dest = htons(8080);
    packet->tcp.seq = htonl(seq);
    packet->tcp.ack_seq = htonl(ack);
    packet->tcp.doff = strchr(flags, 'o') ? 5 + sizeof options / 4 : 5;
    packet->tcp.syn = strchr(flags, 'S') != NULL;
    packet->tcp.ack = strchr(flags, '.') != NULL;
    packet->tcp.window = htons(60000);
    uint32_t pseudo = 0xc000 + 0x0201 + 0xc0a8 + 0x0001 + IPPROTO_TCP + 20 + len;
    packet->tcp.check = htons(sum(&packet->tcp, 20 + len, pseudo));
    return 40 + len;
}
