/* Sizes of F-Stack's queues. DISPATCH_RING_SIZE holds here too: as many frames wait for a process
 * or a worker of the packet dispatcher. The others are F-Stack's, and nothing here goes by them. */
#ifndef FF_MEMORY_H
#define FF_MEMORY_H

#define DISPATCH_RING_SIZE 2048
#define MSG_RING_SIZE 32
#define RX_QUEUE_SIZE 512
#define TX_QUEUE_SIZE 512
#define MEMPOOL_CACHE_SIZE 256
#define MAX_RX_QUEUE_PER_LCORE 16
#define MAX_RX_QUEUE_PER_PORT 128

#endif
