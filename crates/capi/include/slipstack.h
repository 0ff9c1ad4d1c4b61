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

/* Sending without a copy: room for up to `len` bytes in the connection's send ring, in two pieces if the
 * ring's end is between them. Returns how many; -1 and EAGAIN if there is no room. */
ssize_t slipstack_send_room(int fd, size_t len, struct iovec pieces[2]);
/* Sends the first `len` bytes of that room. */
int slipstack_send_done(int fd, size_t len);

/* Receiving without a copy: what waits to be read, where it lies. 0 at the end of the stream; -1 and
 * EAGAIN if nothing waits. */
ssize_t slipstack_recv_look(int fd, struct iovec pieces[2]);
/* Takes the first `len` bytes of it. -1 and EAGAIN: they have moved since, so what was read there does not
 * count: look again. */
int slipstack_recv_done(int fd, const struct iovec pieces[2], size_t len);

/* Gives a buffer of ff_zc_mbuf_get back that will not be sent. */
int slipstack_zc_free(struct ff_zc_mbuf *m);

#ifdef __cplusplus
}
#endif

#endif
