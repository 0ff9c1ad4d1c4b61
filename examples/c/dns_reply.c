/* A name server in the dispatcher: each query of type A is answered with one address for all names,
 * before the stack sees the frame. The socket has the queries steered to this process.
 *
 *     dns_reply --ip 10.0.0.5/24 --if eth1
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ff_api.h"

#define PORT 53
#define ETH_LEN 14
#define IP_LEN 20
#define UDP_LEN 8
#define DNS_LEN 12
#define HEADERS_LEN (ETH_LEN + IP_LEN + UDP_LEN)

/* Name by reference, type A, class IN, 60 s, 192.0.2.1 */
static const uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1};

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

static uint16_t load(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void store(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void swap(uint8_t *a, uint8_t *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static unsigned checksum(const uint8_t *at, size_t len)
{
    unsigned sum = 0;
    for (size_t i = 0; i + 1 < len; i += 2)
        sum += load(at + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return ~sum & 0xffff;
}

static int is_query(const uint8_t *frame, size_t len)
{
    const uint8_t *ip = frame + ETH_LEN, *udp = ip + IP_LEN, *dns = udp + UDP_LEN;
    return len >= HEADERS_LEN + DNS_LEN && load(frame + 12) == 0x0800 && ip[0] == 0x45 &&
           ip[9] == IPPROTO_UDP && load(udp + 2) == PORT && !(dns[2] & 0x80) && load(dns + 4) == 1;
}

static int dispatch(void *data, uint16_t *len, uint16_t queue, uint16_t queues)
{
    uint8_t *frame = (uint8_t *)data, *ip = frame + ETH_LEN;
    uint8_t *udp = ip + IP_LEN, *dns = udp + UDP_LEN;
    size_t end = HEADERS_LEN + DNS_LEN;
    (void)queues;
    if (!is_query(frame, *len))
        return queue;
    while (end < *len && frame[end] != 0)
        end += frame[end] + 1u;
    end += 5; /* the root, type and class */
    if (end > *len)
        return FF_DISPATCH_ERROR;
    memcpy(frame + end, record, sizeof record);
    end += sizeof record;
    store(dns + 2, 0x8180);
    store(dns + 6, 1);
    memset(dns + 8, 0, 4);
    swap(frame, frame + 6, 6);
    swap(ip + 12, ip + 16, 4);
    swap(udp, udp + 2, 2);
    store(udp + 4, (unsigned)(end - ETH_LEN - IP_LEN));
    store(udp + 6, 0); /* no checksum: optional over IPv4 */
    store(ip + 2, (unsigned)(end - ETH_LEN));
    store(ip + 10, 0);
    store(ip + 10, checksum(ip, IP_LEN));
    *len = (uint16_t)end;
    return FF_DISPATCH_RESPONSE;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in address;

    ff_init(argc, argv);
    int sock = ff_socket(AF_INET, SOCK_DGRAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(PORT);
    if (ff_bind(sock, (struct linux_sockaddr *)&address, sizeof address) < 0)
        fail("ff_bind");
    ff_regist_packet_dispatcher(dispatch);
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    ff_run(NULL, NULL);
    return 0;
}
