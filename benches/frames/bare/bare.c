/* A bare loop over an AF_XDP socket: the cost of the kernel's path of a frame without a stack, as
 * the measure for Slipstack's back end.
 *
 *     bare send|receive INTERFACE FRAME SECONDS
 *
 * FRAME: the frame to send, in hexadecimal digits. `receive` redirects all frames of queue 0, in
 * the driver. It prints frames, frames a second, and nanoseconds of processor time for each. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ENTRIES = 2048, CHUNK = 2048, BURST = 64 };

struct ring {
    uint32_t *producer, *consumer, *flags;
    void *entries;
};

static struct ring fill, completion, rx, tx;
static uint8_t *memory;
static int sock;

static void need(int is_done, const char *what)
{
    if (!is_done) {
        fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int bpf(int command, union bpf_attr *attr)
{
    return syscall(SYS_bpf, command, attr, sizeof *attr);
}

static void set(int name, const void *value, socklen_t len)
{
    need(setsockopt(sock, SOL_XDP, name, value, len) == 0, "an option of the socket");
}

static struct ring map(const struct xdp_ring_offset *at, uint64_t place, size_t entry)
{
    size_t len = at->desc + ENTRIES * entry;
    uint8_t *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, sock, place);
    need(base != MAP_FAILED, "mapping a ring");
    return (struct ring){
        (uint32_t *)(base + at->producer),
        (uint32_t *)(base + at->consumer),
        (uint32_t *)(base + at->flags),
        base + at->desc,
    };
}

static uint32_t seen(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void publish(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void open_socket(unsigned index)
{
    size_t len = 2UL * ENTRIES * CHUNK;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    memory = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
    need(memory != MAP_FAILED, "memory");
    sock = socket(AF_XDP, SOCK_RAW, 0);
    need(sock >= 0, "a socket");
    struct xdp_umem_reg reg = { .addr = (uintptr_t)memory, .len = len, .chunk_size = CHUNK };
    set(XDP_UMEM_REG, &reg, sizeof reg);
    int entries = ENTRIES;
    int names[] = { XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING };
    for (int i = 0; i < 4; i++)
        set(names[i], &entries, sizeof entries);
    struct xdp_mmap_offsets at;
    socklen_t at_len = sizeof at;
    need(getsockopt(sock, SOL_XDP, XDP_MMAP_OFFSETS, &at, &at_len) == 0, "offsets");
    fill = map(&at.fr, XDP_UMEM_PGOFF_FILL_RING, sizeof(uint64_t));
    completion = map(&at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, sizeof(uint64_t));
    rx = map(&at.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc));
    tx = map(&at.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc));
    for (uint32_t i = 0; i < ENTRIES; i++)
        ((uint64_t *)fill.entries)[i] = (uint64_t)i * CHUNK;
    publish(fill.producer, ENTRIES);
    struct sockaddr_xdp to = {
        .sxdp_family = AF_XDP,
        .sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP,
        .sxdp_ifindex = index,
    };
    /* The kernel releases the socket of an ended process some time later. */
    int bound = -1;
    for (int tries = 0; bound != 0 && tries < 200; tries++) {
        bound = bind(sock, (struct sockaddr *)&to, sizeof to);
        if (bound != 0 && errno == EBUSY)
            usleep(10000);
    }
    need(bound == 0, "binding the socket");
}

/* A program that redirects every frame to the socket of its queue. */
static void redirect(unsigned index)
{
    union bpf_attr attr = { .map_type = BPF_MAP_TYPE_XSKMAP };
    attr.key_size = attr.value_size = 4;
    attr.max_entries = 1;
    int sockets = bpf(BPF_MAP_CREATE, &attr);
    need(sockets >= 0, "a map");
    uint32_t queue = 0;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = sockets;
    attr.key = (uintptr_t)&queue;
    attr.value = (uintptr_t)&sock;
    need(bpf(BPF_MAP_UPDATE_ELEM, &attr) == 0, "the map's entry");
    struct bpf_insn code[] = {
        { .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1,
          .off = offsetof(struct xdp_md, rx_queue_index) },
        { .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD,
          .imm = sockets },
        { 0 },
        { .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS },
        { .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
        { .code = BPF_JMP | BPF_EXIT },
    };
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_XDP;
    attr.expected_attach_type = BPF_XDP;
    attr.insns = (uintptr_t)code;
    attr.insn_cnt = sizeof code / sizeof *code;
    attr.license = (uintptr_t)"MIT";
    int program = bpf(BPF_PROG_LOAD, &attr);
    need(program >= 0, "the program");
    memset(&attr, 0, sizeof attr);
    attr.link_create.prog_fd = program;
    attr.link_create.target_ifindex = index;
    attr.link_create.attach_type = BPF_XDP;
    attr.link_create.flags = XDP_FLAGS_DRV_MODE;
    need(bpf(BPF_LINK_CREATE, &attr) >= 0, "attaching the program");
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static uint64_t send_burst(const uint8_t *frame, uint32_t len)
{
    uint32_t done = *completion.consumer, next = *tx.producer;
    publish(completion.consumer, seen(completion.producer));
    done = *completion.consumer;
    for (int i = 0; i < BURST; i++, next++) {
        /* Every frame that has been sent is complete before its chunk is used again. */
        if (next - done >= ENTRIES)
            break;
        uint64_t at = (uint64_t)(ENTRIES + next % ENTRIES) * CHUNK;
        memcpy(memory + at, frame, len);
        ((struct xdp_desc *)tx.entries)[next % ENTRIES] = (struct xdp_desc){ at, len, 0 };
    }
    uint64_t given = next - *tx.producer;
    publish(tx.producer, next);
    while (seen(tx.consumer) != next)
        if (sendto(sock, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
            publish(completion.consumer, seen(completion.producer));
    return given;
}

/* One byte of each frame is read, as a stack would. */
static uint64_t receive_burst(uint64_t *sum)
{
    uint32_t from = *rx.consumer, to = seen(rx.producer), given = *fill.producer;
    for (uint32_t at = from; at != to; at++, given++) {
        struct xdp_desc *desc = &((struct xdp_desc *)rx.entries)[at % ENTRIES];
        *sum += memory[desc->addr];
        ((uint64_t *)fill.entries)[given % ENTRIES] = desc->addr - desc->addr % CHUNK;
    }
    publish(fill.producer, given);
    publish(rx.consumer, to);
    if (seen(fill.flags) & XDP_RING_NEED_WAKEUP)
        recvfrom(sock, NULL, 0, MSG_DONTWAIT, NULL, NULL);
    return to - from;
}

int main(int count, char **words)
{
    need(count == 5, "say send or receive, INTERFACE, FRAME and SECONDS");
    int is_sender = strcmp(words[1], "send") == 0;
    unsigned index = if_nametoindex(words[2]);
    need(index != 0, words[2]);
    uint8_t frame[CHUNK];
    uint32_t len = strlen(words[3]) / 2;
    need(len <= sizeof frame, "the frame is too long");
    for (uint32_t i = 0; i < len; i++)
        sscanf(words[3] + 2 * i, "%2hhx", &frame[i]);
    open_socket(index);
    if (!is_sender)
        redirect(index);
    printf("ready\n");
    fflush(stdout);
    uint64_t frames = 0, sum = 0;
    double begin = 0, limit = atof(words[4]);
    while (begin == 0 || now() - begin < limit) {
        uint64_t done = is_sender ? send_burst(frame, len) : receive_burst(&sum);
        if (begin == 0 && done == 0) {
            struct pollfd fd = { .fd = sock, .events = POLLIN };
            poll(&fd, 1, 10);
        } else if (begin == 0) {
            begin = now();
        }
        frames += done;
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double spent = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
                   (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("%llu frames, %.0f a second, %.0f ns each (%llx)\n", (unsigned long long)frames,
           frames / (now() - begin), spent * 1e9 / frames, (unsigned long long)sum);
    return 0;
}
