/* The answer of ff_get_traffic. F-Stack's tools exchange the other messages of this header with a
 * process; ours ask the keeper. */
#ifndef FF_MSG_H
#define FF_MSG_H

#include <stdint.h>

struct ff_traffic_args {
    uint64_t rx_packets;
    uint64_t rx_bytes;
    uint64_t tx_packets;
    uint64_t tx_bytes;
    uint64_t rx_dropped;
    uint64_t tx_dropped;
};

#endif
