/* Source addresses that the program chooses (ff_regist_pcblddr_fun), and a frame of its own
 * (ff_dpdk_raw_packet_send).
 *     chosen_sources PEER OWN OTHER OPTIONS…
 * Connects to PEER's ports 7400 from OTHER and 7401 from OWN, and sends "raw" to its UDP port 7402
 * from OTHER. Ends with the number of failed checks. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ff_api.h"

enum { ETHERNET = 14, HEADERS = ETHERNET + 20 + 8 };

static int failures, calls;
static struct in_addr peer, own, other;

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("FAILED: %s (errno %d)\n", what, errno);
        failures++;
    }
}

static int choose(uint16_t family, void *to, uint16_t port, void *from)
{
    calls++;
    check(family == AF_INET && memcmp(to, &peer, sizeof peer) == 0, "family and destination");
    if (port == htons(7400))
        memcpy(from, &other, sizeof other);
    return 0;
}

/* Whether a connection to `port` comes from `from`. */
static int comes_from(int kind, uint16_t port, struct in_addr from)
{
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    int fd = ff_socket(AF_INET, kind, 0);
    memset(&name, 0, sizeof name);
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr = peer;
    int is_so = ff_connect(fd, (struct linux_sockaddr *)&name, sizeof name) == 0 &&
                ff_getsockname(fd, (struct linux_sockaddr *)&name, &len) == 0 &&
                name.sin_addr.s_addr == from.s_addr;
    ff_close(fd);
    return is_so;
}

static void put(uint8_t *at, unsigned number)
{
    at[0] = (uint8_t)(number >> 8);
    at[1] = (uint8_t)number;
}

static int send_frame(const char *text)
{
    uint8_t frame[100] = {0};
    uint8_t *ip = frame + ETHERNET, *udp = ip + 20;
    unsigned len = (unsigned)strlen(text), sum = 0;
    memset(frame, 0xff, 6);
    frame[6] = 2;
    put(frame + 12, 0x0800);
    ip[0] = 0x45;
    put(ip + 2, 28 + len);
    ip[8] = 64;
    ip[9] = IPPROTO_UDP;
    memcpy(ip + 12, &other, 4);
    memcpy(ip + 16, &peer, 4);
    for (int i = 0; i < 20; i += 2)
        sum += (unsigned)ip[i] << 8 | ip[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    put(ip + 10, ~(sum + (sum >> 16)));
    put(udp, 7403);
    put(udp + 2, 7402);
    put(udp + 4, 8 + len);
    memcpy(udp + 8, text, len);
    return ff_dpdk_raw_packet_send(frame, (int)(HEADERS + len), 0);
}

int main(int argc, char *argv[])
{
    ff_init(argc - 3, argv + 3);
    inet_pton(AF_INET, argv[1], &peer);
    inet_pton(AF_INET, argv[2], &own);
    inet_pton(AF_INET, argv[3], &other);
    check(comes_from(SOCK_STREAM, 7400, own), "without a function the routes choose");
    ff_regist_pcblddr_fun(choose);
    check(comes_from(SOCK_STREAM, 7400, other), "the chosen address");
    check(comes_from(SOCK_DGRAM, 7400, other), "the chosen address of a datagram socket");
    check(comes_from(SOCK_STREAM, 7401, own), "none chosen: the routes choose");
    check(calls == 3, "it is called once for each");
    ff_regist_pcblddr_fun(NULL);
    check(comes_from(SOCK_STREAM, 7400, own), "removed");
    for (int i = 0; i < 3; i++) {
        int sent = send_frame("raw");
        check(sent == 0 || errno == EOPNOTSUPP, "a frame");
        usleep(1000);
    }
    printf("%d failed\n", failures);
    fflush(stdout);
    /* The peer says when it has what it waits for. */
    for (char byte; read(0, &byte, 1) > 0;)
        ;
    return failures;
}
