/* UDP echo by workers: the dispatcher hands each datagram to one of them, or answers it itself,
 * and workers answer in bursts. The stack does the rest: ARP, other ports. With a share of 0
 * this is a pipeline, with workers 0 run to completion, with both the mixed shape.
 *
 *     udp_workers --ip 10.0.0.5/24 --if eth1 WORKERS SHARE
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slipstack.h"

#define PORT 7
#define ETH_LEN 14
#define HEADERS_LEN (ETH_LEN + 20 + 8)

static unsigned workers, share, seen;

static void on_signal(int signal)
{
    (void)signal;
    ff_stop_run();
}

static unsigned load(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static void swap(uint8_t *a, uint8_t *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static int is_ours(const uint8_t *frame, size_t len)
{
    const uint8_t *ip = frame + ETH_LEN;
    return len >= HEADERS_LEN && load(frame + 12) == 0x0800 && ip[0] == 0x45 &&
           ip[9] == IPPROTO_UDP && load(ip + 22) == PORT;
}

/* Both sums are the same with the ends exchanged. */
static int answer(void *data, uint16_t *len, uint16_t queue, uint16_t queues)
{
    uint8_t *frame = (uint8_t *)data, *ip = frame + ETH_LEN;
    (void)len, (void)queue, (void)queues;
    swap(frame, frame + 6, 6);
    swap(ip + 12, ip + 16, 4);
    swap(ip + 20, ip + 22, 2);
    return FF_DISPATCH_RESPONSE;
}

static int dispatch(void *data, uint16_t *len, uint16_t queue, uint16_t queues)
{
    if (!is_ours((const uint8_t *)data, *len))
        return queue;
    if (workers == 0 || seen++ % 100 < share)
        return answer(data, len, queue, queues);
    return SLIPSTACK_DISPATCH_WORKER;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in address;

    if (argc < 3) {
        fprintf(stderr, "udp_workers [options] WORKERS SHARE\n");
        return 2;
    }
    workers = (unsigned)atoi(argv[argc - 2]);
    share = (unsigned)atoi(argv[argc - 1]);
    ff_init(argc - 2, argv);
    int sock = ff_socket(AF_INET, SOCK_DGRAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(PORT);
    if (ff_bind(sock, (struct linux_sockaddr *)&address, sizeof address) < 0) {
        perror("ff_bind");
        return 1;
    }
    if (workers > 0 && slipstack_dispatch_workers(workers, answer) < 0) {
        perror("slipstack_dispatch_workers");
        return 1;
    }
    ff_regist_packet_dispatcher(dispatch);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    ff_run(NULL, NULL);
    for (unsigned i = 0; i < workers; i++) {
        struct slipstack_worker_counts counts;
        if (slipstack_worker_counts(i, &counts) == 0)
            printf("worker %u: %llu frames in %llu bursts of up to %llu, %llu answers, %llu found "
                   "the ring full\n",
                   i, (unsigned long long)counts.frames, (unsigned long long)counts.bursts,
                   (unsigned long long)counts.largest_burst, (unsigned long long)counts.answers,
                   (unsigned long long)counts.ring_full);
    }
    return 0;
}
