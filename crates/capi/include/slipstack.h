/* Slipstack as a C library: one header for all of it, and what F-Stack does not have. */
#ifndef SLIPSTACK_H
#define SLIPSTACK_H

#include "ff_api.h"
#include "ff_config.h"
#include "ff_epoll.h"
#include "ff_host_interface.h"
#include "ff_log.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sending without a copy: room for up to `len` bytes in the connection's send ring, in two
 * pieces if the ring's end is between them. Returns how many; -1 and EAGAIN if there is no room. */
ssize_t slipstack_send_room(int fd, size_t len, struct iovec pieces[2]);
/* Sends the first `len` bytes of that room. */
int slipstack_send_done(int fd, size_t len);

/* Receiving without a copy: what waits to be read, where it lies. 0 at the end of the stream; -1
 * and EAGAIN if nothing waits. */
ssize_t slipstack_recv_look(int fd, struct iovec pieces[2]);
/* Takes the first `len` bytes of it. -1 and EAGAIN: they have moved since, so what was read
 * there does not count: look again. */
int slipstack_recv_done(int fd, const struct iovec pieces[2], size_t len);

/* Receiving without a copy, to be kept: takes up to `most` bytes that wait, which stay where they
 * lie, unchanged, beyond the call and while more comes, until they are given back, in any order, or
 * the connection is closed. Returns how many; 0 at the end of the stream; -1 and EAGAIN if nothing
 * waits, ENOBUFS if 1024 segments of the connection are kept. Their room in the receive buffer is
 * not used meanwhile: a connection of which all is kept stops, alone. */
struct slipstack_segment {
    struct iovec pieces[2]; /* two if the ring's end is between them */
    uint64_t at;
};
ssize_t slipstack_recv_take(int fd, size_t most, struct slipstack_segment *segment);
/* -1 and EINVAL: it has been given back, or was never taken. */
int slipstack_recv_give(int fd, const struct slipstack_segment *segment);

/* Filling a buffer of ff_zc_mbuf_get in place, where ff_zc_mbuf_write copies: `place` is where its
 * next bytes go. Returns how many go there, 0 if it is full: a buffer of more than 8 MiB lies in
 * several places. */
ssize_t slipstack_zc_room(struct ff_zc_mbuf *m, struct iovec *place);
/* The first `len` bytes of that place are filled. */
int slipstack_zc_filled(struct ff_zc_mbuf *m, size_t len);
/* Gives a buffer of ff_zc_mbuf_get back that will not be sent. */
int slipstack_zc_free(struct ff_zc_mbuf *m);

/* Workers of the packet dispatcher (ff_regist_packet_dispatcher): `count` threads (1 to 64, once
 * in a process, after ff_init), each of which shows frames to `work` in bursts. A worker is a
 * queue: behind the processes' queues come the workers', and nb_queues counts both. The
 * dispatcher returns a worker's number, or SLIPSTACK_DISPATCH_WORKER for the next in turn.
 * `work` returns FF_DISPATCH_RESPONSE to send the frame back as it has left it, a process's
 * number (0) to have this process's stack get it, or FF_DISPATCH_ERROR. 2048 frames wait for
 * each worker; more are dropped and counted. */
#define SLIPSTACK_DISPATCH_WORKER (-3)
int slipstack_dispatch_workers(unsigned count, dispatch_func_t work);

struct slipstack_worker_counts {
    uint64_t frames;
    uint64_t bursts;
    uint64_t largest_burst;
    uint64_t in_large_bursts; /* frames in bursts of 8 or more */
    uint64_t answers;
    uint64_t ring_full;
};
int slipstack_worker_counts(unsigned worker, struct slipstack_worker_counts *counts);

#ifdef __cplusplus
}
#endif

#endif
