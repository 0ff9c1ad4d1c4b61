/* UDP echo by two processes of one configuration: the dispatcher of process 0 hands all
 * datagrams to the queue of process 1, whose stack and socket answer. Says how many it handed
 * over. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ff_api.h"
#include "ff_config.h"

static unsigned handed;
static int sock = -1;

static void on_signal(int signal)
{
    (void)signal;
    ff_stop_run();
}

static int dispatch(void *data, uint16_t *len, uint16_t queue, uint16_t queues)
{
    const uint8_t *frame = (const uint8_t *)data;
    int is_udp = *len > 42 && frame[12] == 8 && frame[13] == 0 && frame[23] == IPPROTO_UDP;
    if (!is_udp || queue != 0 || queues != 2)
        return queue;
    handed++;
    return 1;
}

static int loop(void *arg)
{
    char text[2048];
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    ssize_t got;
    (void)arg;
    while ((got = ff_recvfrom(sock, text, sizeof text, MSG_DONTWAIT, (struct linux_sockaddr *)&peer,
                              &len)) > 0)
        ff_sendto(sock, text, (size_t)got, 0, (struct linux_sockaddr *)&peer, len);
    return 0;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in address;

    ff_init(argc, argv);
    sock = ff_socket(AF_INET, SOCK_DGRAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(7);
    if (ff_bind(sock, (struct linux_sockaddr *)&address, sizeof address) < 0) {
        perror("ff_bind");
        return 1;
    }
    ff_regist_packet_dispatcher(dispatch);
    signal(SIGTERM, on_signal);
    printf("ready: process %d of %d, %s\n", ff_global_cfg.dpdk.proc_id,
           ff_global_cfg.dpdk.nb_procs, ff_global_cfg.dpdk.proc_type);
    fflush(stdout);
    ff_run(loop, NULL);
    printf("handed over %u\n", handed);
    return 0;
}
