/* Answers datagrams of four bytes to port 7 with the dispatcher's context: whether a tag was
 * taken out, and which, and many bytes more. With workers they answer, and the tag is written
 * before. Usage: answers_with_tag OPTIONS… WORKERS */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slipstack.h"

#define HEADERS (14 + 20 + 8)
#define LONGER 600

static unsigned workers;

static void on_signal(int signal)
{
    (void)signal;
    ff_stop_run();
}

static void swap(uint8_t *a, uint8_t *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

/* By LONGER bytes: both lengths, and the header's sum. */
static void lengthen(uint8_t *frame, uint16_t *len)
{
    uint16_t total = htons((uint16_t)(*len - 14 + LONGER)),
             udp = htons((uint16_t)(*len - 34 + LONGER));
    uint32_t sum = 0;
    memset(frame + *len, 'l', LONGER);
    *len = (uint16_t)(*len + LONGER);
    memcpy(frame + 16, &total, 2);
    memcpy(frame + 38, &udp, 2);
    memset(frame + 24, 0, 2);
    for (int at = 14; at < 34; at += 2)
        sum += (uint32_t)(frame[at] << 8 | frame[at + 1]);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    frame[24] = (uint8_t)(~sum >> 8);
    frame[25] = (uint8_t)~sum;
}

static int answer(void *data, uint16_t *len, uint16_t queue, uint16_t queues)
{
    uint8_t *frame = (uint8_t *)data;
    (void)queue, (void)queues;
    swap(frame, frame + 6, 6);
    swap(frame + 26, frame + 30, 4);
    swap(frame + 34, frame + 36, 2);
    memset(frame + 40, 0, 2); /* no checksum */
    lengthen(frame, len);
    return FF_DISPATCH_RESPONSE;
}

static int dispatch(void *data, uint16_t *len, uint16_t queue, uint16_t queues,
                    struct ff_dispatcher_context context)
{
    uint8_t *frame = (uint8_t *)data;
    uint16_t stripped = htons(context.vlan.stripped);
    if (*len < HEADERS + 4 || frame[12] != 8 || frame[23] != 17 || frame[37] != 7 || frame[36] != 0)
        return queue;
    memcpy(frame + HEADERS, &stripped, 2);
    memcpy(frame + HEADERS + 2, &context.vlan.vlan_tci, 2);
    return workers ? SLIPSTACK_DISPATCH_WORKER : answer(data, len, queue, queues);
}

static int loop(void *arg)
{
    (void)arg;
    return 0;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7)};
    ff_init(argc, argv);
    workers = (unsigned)atoi(argv[argc - 1]);
    int fd = ff_socket(AF_INET, SOCK_DGRAM, 0);
    if (ff_bind(fd, (struct linux_sockaddr *)&any, sizeof any) < 0)
        return 1;
    if (workers && slipstack_dispatch_workers(workers, answer) < 0)
        return 2;
    ff_regist_packet_dispatcher_context(dispatch);
    signal(SIGTERM, on_signal);
    ff_run(loop, NULL);
    return 0;
}
