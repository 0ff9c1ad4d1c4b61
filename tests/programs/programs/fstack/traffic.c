/* Echoes one message, and prints what ff_get_traffic says before and after. */
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ff_api.h"
#include "ff_msg.h"

static void tell(void)
{
    struct ff_traffic_args now;
    ff_get_traffic(&now);
    printf("%" PRIu64 " %" PRIu64 " ", now.rx_packets, now.rx_bytes);
    printf("%" PRIu64 " %" PRIu64 " ", now.tx_packets, now.tx_bytes);
    printf("%" PRIu64 " %" PRIu64 "\n", now.rx_dropped, now.tx_dropped);
    fflush(stdout);
}

int main(int argc, char *argv[])
{
    static char bytes[1 << 16];
    struct sockaddr_in any;
    ff_init(argc, argv);
    memset(&any, 0, sizeof any);
    any.sin_family = AF_INET;
    any.sin_port = htons(80);
    int listener = ff_socket(AF_INET, SOCK_STREAM, 0);
    if (ff_bind(listener, (struct linux_sockaddr *)&any, sizeof any) || ff_listen(listener, 16))
        return 1;
    for (;;) {
        int fd = ff_accept(listener, NULL, NULL);
        ssize_t got;
        tell();
        while ((got = ff_read(fd, bytes, sizeof bytes)) > 0)
            if (ff_write(fd, bytes, (size_t)got) != got)
                return 2;
        tell();
        ff_close(fd);
    }
}
