/* What the Rust part sees of DPDK. Numbers that are not negative are results, others -errno. */
#ifndef SLIPSTACK_SHIM_H
#define SLIPSTACK_SHIM_H

#include <stdint.h>

#define SHIM_NAME_MAX 64
#define SHIM_BURST 64
/* Pieces of one frame at most: 64 KiB in the pieces that slots hand over. */
#define SHIM_PIECES_MAX 40
/* Queues of a port in each direction. */
#define SHIM_QUEUES_MAX 16
/* Bytes of an RSS key, and entries of an indirection table. */
#define SHIM_KEY_MAX 52
#define SHIM_TABLE_MAX 512

struct shim_port {
	char name[SHIM_NAME_MAX];
	char driver[SHIM_NAME_MAX];
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t number;
	/* Offloads of both directions that the port has. */
	uint8_t has_checksum;
	uint8_t has_tso;
	uint8_t has_interrupts;
	uint8_t is_bond;
	uint8_t is_bonded;
	/* In each direction. Before the start: how many it may have. */
	uint16_t queues;
	/* Frames are spread by a hash that the port was told. */
	uint8_t has_rss;
	/* Tags are taken out of received frames by the port. */
	uint8_t strips_tags;
};

/* The hash of a port by which flows come to its queues. */
struct shim_rss {
	uint16_t key_len;
	uint16_t table_len;
	uint8_t key[SHIM_KEY_MAX];
	uint16_t table[SHIM_TABLE_MAX];
};

struct shim_setup {
	/* All zero: the port's own. */
	uint8_t mac[6];
	/* 0: the port's own. */
	uint16_t mtu;
	uint16_t descriptors;
	uint8_t checksum;
	uint8_t tso;
	uint8_t promiscuous;
	uint8_t interrupts;
	/* As many as the port has, up to this number. */
	uint16_t queues;
	/* A key by which both directions of a flow come to one queue. */
	uint8_t symmetric;
	/* The port takes tags out, if it can. */
	uint8_t strip_tags;
};

struct shim_piece {
	const void *data;
	uint32_t len;
};

/* A received frame; `whole` is NULL if it lies in several pieces. */
struct shim_frame {
	const void *whole;
	void *mbuf;
	uint32_t len;
	uint16_t vlan;
	uint8_t checked;
};

struct shim_offload {
	/* 0 = no tag. */
	uint16_t vlan;
	/* Where the transport header begins if its checksum is left to the port, else 0. */
	uint16_t transport_at;
	/* Where the checksum lies from there. */
	uint16_t checksum_at;
	/* Payload of each piece of a frame that the port cuts apart, else 0. */
	uint16_t mss;
};

int shim_init(int argc, char **argv);
const char *shim_explain(int error);
int shim_ports(struct shim_port *out, int max);
/* Configures and starts a port, and tells what it is now. */
int shim_start(uint16_t port, const struct shim_setup *setup, struct shim_port *out);
int shim_is_up(uint16_t port);
/* Threads of DPDK's, the first one among them. */
int shim_threads(void);
/* Key and indirection table of a port that runs, or -errno. */
int shim_rss(uint16_t port, struct shim_rss *out);
/* Runs a function on each of the first `count` further threads of DPDK's, or -errno; they end
 * before shim_join returns. */
int shim_launch(int (*run)(void *), void **arguments, int count);
void shim_join(void);

/* One thread works at a queue. */
int shim_receive(uint16_t port, uint16_t queue, struct shim_frame *out, int max);
uint32_t shim_copy(const struct shim_frame *frame, void *into, uint32_t len);
void shim_free(struct shim_frame *frames, int count);

/* Takes a frame for the next shim_flush: 1, or 0 if there is no room or memory, or -errno if it
 * cannot be sent at all. */
int shim_send(uint16_t port, uint16_t queue, const struct shim_piece *pieces, int count,
	      const struct shim_offload *offload);
/* Returns how many frames still wait. */
int shim_flush(uint16_t port, uint16_t queue);
/* Gives up what waits, and returns how many frames that were. */
int shim_give_up(uint16_t queue);

/* A descriptor that is readable when frames come while shim_arm is in force, or -errno. */
int shim_interrupt_fd(uint16_t port, uint16_t queue);
int shim_arm(uint16_t port, uint16_t queue, int on);
/* Frames that the port lost for want of room. */
uint64_t shim_missed(uint16_t port);
void shim_stop(uint16_t port);

#endif
