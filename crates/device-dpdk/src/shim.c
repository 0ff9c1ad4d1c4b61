/* DPDK's calls in the few shapes that the Rust part needs; its fast path is inline functions. */

#include "shim.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_tcp.h>
#include <rte_udp.h>

/* Frames that wait for the port; what it does not take stays. */
#define OUT_MAX 256
#define CACHE 256

/* A queue in each direction, with one thread at both. */
struct queue {
	struct rte_mempool *pool;
	struct rte_mbuf *out[OUT_MAX];
	int out_count;
} __rte_cache_aligned;

static struct queue queues[SHIM_QUEUES_MAX];
/* Interrupts need no turning on: the descriptor is the device itself. */
static int is_always_armed;

int shim_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

const char *shim_explain(int error)
{
	return rte_strerror(error);
}

static int describe(uint16_t port, struct shim_port *to)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	memset(to, 0, sizeof(*to));
	to->number = port;
	rte_eth_dev_get_name_by_port(port, to->name);
	snprintf(to->driver, sizeof(to->driver), "%s", info.driver_name);
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(to->mac, mac.addr_bytes, sizeof(to->mac));
	if (rte_eth_dev_get_mtu(port, &to->mtu) != 0)
		to->mtu = RTE_ETHER_MTU;
	uint64_t sums = RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	to->has_checksum = (info.tx_offload_capa & sums) == sums;
	uint64_t cuts = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	to->has_tso = to->has_checksum && (info.tx_offload_capa & cuts) == cuts;
	to->is_bond = strcmp(info.driver_name, "net_bonding") == 0;
	to->is_bonded = *info.dev_flags & RTE_ETH_DEV_BONDED_SLAVE ? 1 : 0;
	to->queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	return 0;
}

int shim_ports(struct shim_port *to, int max)
{
	uint16_t port;
	int count = 0;

	RTE_ETH_FOREACH_DEV(port)
		if (count < max && describe(port, &to[count]) == 0)
			count++;
	return count;
}

static int make_pool(uint16_t port, uint16_t queue, uint16_t descriptors, uint32_t room)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	/* Both rings full, a burst on its way, and what the cache keeps. */
	uint32_t count = 2 * descriptors + 2 * SHIM_BURST + OUT_MAX + 2 * CACHE + SHIM_PIECES_MAX;
	int node = rte_eth_dev_socket_id(port);

	snprintf(name, sizeof(name), "slipstack%u", queue);
	queues[queue].pool = rte_pktmbuf_pool_create(name, count, CACHE, 0,
						     room + RTE_PKTMBUF_HEADROOM, node);
	return queues[queue].pool == NULL ? -rte_errno : 0;
}

static uint64_t wanted(const struct rte_eth_dev_info *info, const struct shim_setup *setup)
{
	uint64_t all = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;

	if (setup->checksum)
		all |= RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM |
		       RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	if (setup->tso)
		all |= RTE_ETH_TX_OFFLOAD_TCP_TSO;
	return all & info->tx_offload_capa;
}

static int set_queues(uint16_t port, const struct rte_eth_dev_info *info, uint16_t descriptors,
		      uint16_t count)
{
	uint16_t rx = descriptors, tx = descriptors;
	int node = rte_eth_dev_socket_id(port);
	int result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
	uint32_t room = RTE_MBUF_DEFAULT_DATAROOM;

	for (uint16_t queue = 0; result == 0 && queue < count; queue++) {
		result = make_pool(port, queue, RTE_MAX(rx, tx),
				   RTE_MAX(room, info->min_rx_bufsize));
		if (result == 0)
			result = rte_eth_rx_queue_setup(port, queue, rx, node, NULL,
							queues[queue].pool);
		if (result == 0)
			result = rte_eth_tx_queue_setup(port, queue, tx, node, NULL);
	}
	return result;
}

/* The port's own key, or one that repeats after 16 bits: exchanging addresses and ports of a flow
 * leaves its hash as it is. */
static int set_rss(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info, int symmetric)
{
	static uint8_t key[SHIM_KEY_MAX];
	uint64_t flows = (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP) &
			 info->flow_type_rss_offloads;

	if (flows == 0)
		return 0;
	conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	conf->rx_adv_conf.rss_conf.rss_hf = flows;
	if (symmetric && info->hash_key_size <= sizeof(key)) {
		for (size_t i = 0; i < sizeof(key); i++)
			key[i] = i % 2 ? 0x5a : 0x6d;
		conf->rx_adv_conf.rss_conf.rss_key = key;
		conf->rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
	}
	return 1;
}

static int set_identity(uint16_t port, const struct shim_setup *setup)
{
	static const uint8_t none[6];
	struct rte_ether_addr mac;
	int is_foreign = 0;

	if (memcmp(setup->mac, none, sizeof(none)) != 0) {
		memcpy(mac.addr_bytes, setup->mac, sizeof(setup->mac));
		is_foreign = rte_eth_dev_default_mac_addr_set(port, &mac) != 0;
	}
	/* Groups are joined in the stack. */
	rte_eth_allmulticast_enable(port);
	if (setup->promiscuous || is_foreign)
		return rte_eth_promiscuous_enable(port);
	return 0;
}

/* Whether frames can be waited for: a driver may have a descriptor and nothing that makes it
 * ring. */
static int can_wait(uint16_t port, uint16_t count, const char *driver)
{
	int result = 0;

	for (uint16_t queue = 0; result == 0 && queue < count; queue++) {
		if (rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue) < 0)
			return 0;
		result = rte_eth_dev_rx_intr_enable(port, queue);
		if (result == 0)
			rte_eth_dev_rx_intr_disable(port, queue);
	}
	is_always_armed = result == -ENOTSUP && strcmp(driver, "net_tap") == 0;
	return result == 0 || is_always_armed;
}

static void choose(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info,
		   const struct shim_setup *setup)
{
	uint64_t can = info->rx_offload_capa, wants = 0;

	memset(conf, 0, sizeof(*conf));
	conf->txmode.offloads = wanted(info, setup);
	if (setup->checksum)
		wants |= RTE_ETH_RX_OFFLOAD_CHECKSUM;
	if (setup->strip_tags)
		wants |= RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
	if (setup->mtu > RTE_ETHER_MTU)
		wants |= RTE_ETH_RX_OFFLOAD_SCATTER;
	conf->rxmode.offloads = wants & can;
	if (setup->mtu)
		conf->rxmode.mtu = setup->mtu;
	conf->intr_conf.rxq = setup->interrupts;
}

static int configure(uint16_t port, uint16_t count, struct rte_eth_conf *conf)
{
	int result = rte_eth_dev_configure(port, count, count, conf);

	if (result != 0 && conf->intr_conf.rxq) {
		/* A driver without them refuses the wish. */
		conf->intr_conf.rxq = 0;
		result = rte_eth_dev_configure(port, count, count, conf);
	}
	return result;
}

int shim_start(uint16_t port, const struct shim_setup *setup, struct shim_port *to)
{
	struct rte_eth_conf conf;
	struct rte_eth_dev_info info;
	int has_rss = 0;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	uint16_t count = RTE_MIN(setup->queues, RTE_MIN(info.max_rx_queues, info.max_tx_queues));
	count = RTE_MAX(1, RTE_MIN(count, SHIM_QUEUES_MAX));
	choose(&conf, &info, setup);
	if (count > 1)
		has_rss = set_rss(&conf, &info, setup->symmetric);
	result = configure(port, count, &conf);
	if (result == 0)
		result = set_queues(port, &info, setup->descriptors, count);
	if (result != 0)
		return result;
	if (setup->mtu) {
		result = rte_eth_dev_set_mtu(port, setup->mtu);
		if (result != 0 && setup->mtu != RTE_ETHER_MTU)
			return result;
	}
	result = rte_eth_dev_start(port);
	if (result != 0)
		return result;
	result = set_identity(port, setup);
	if (result != 0 && result != -ENOTSUP)
		return result;
	result = describe(port, to);
	if (result != 0)
		return result;
	to->queues = count;
	to->has_rss = has_rss;
	to->strips_tags = conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_STRIP ? 1 : 0;
	to->has_checksum &= setup->checksum;
	to->has_tso &= setup->tso && setup->checksum;
	to->has_interrupts = conf.intr_conf.rxq && can_wait(port, count, info.driver_name);
	return 0;
}

int shim_rss(uint16_t port, struct shim_rss *to)
{
	struct rte_eth_rss_reta_entry64 entries[SHIM_TABLE_MAX / RTE_ETH_RETA_GROUP_SIZE];
	struct rte_eth_rss_conf conf;
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	if (info.hash_key_size > SHIM_KEY_MAX || info.reta_size > SHIM_TABLE_MAX ||
	    info.reta_size == 0)
		return -ENOTSUP;
	memset(&conf, 0, sizeof(conf));
	conf.rss_key = to->key;
	conf.rss_key_len = info.hash_key_size;
	result = rte_eth_dev_rss_hash_conf_get(port, &conf);
	if (result != 0)
		return result;
	memset(entries, 0, sizeof(entries));
	for (int i = 0; i < info.reta_size; i++)
		entries[i / RTE_ETH_RETA_GROUP_SIZE].mask |=
			1ull << i % RTE_ETH_RETA_GROUP_SIZE;
	result = rte_eth_dev_rss_reta_query(port, entries, info.reta_size);
	if (result != 0)
		return result;
	to->key_len = info.hash_key_size;
	to->table_len = info.reta_size;
	for (int i = 0; i < info.reta_size; i++)
		to->table[i] =
			entries[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
	return 0;
}

int shim_threads(void)
{
	return (int)rte_lcore_count();
}

int shim_launch(int (*run)(void *), void **arguments, int count)
{
	unsigned int core;
	int launched = 0;

	if ((int)rte_lcore_count() - 1 < count)
		return -ENOSPC;
	RTE_LCORE_FOREACH_WORKER(core) {
		if (launched == count)
			break;
		int result = rte_eal_remote_launch(run, arguments[launched], core);

		if (result != 0)
			return result;
		launched++;
	}
	return 0;
}

void shim_join(void)
{
	rte_eal_mp_wait_lcore();
}

int shim_is_up(uint16_t port)
{
	struct rte_eth_link link;

	if (rte_eth_link_get_nowait(port, &link) != 0)
		return 0;
	return link.link_status == RTE_ETH_LINK_UP;
}

/* NONE: the bytes are right, and the field was not filled in. */
static int is_checked(uint64_t flags)
{
	uint64_t transport = flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
	uint64_t network = flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;

	return (transport == RTE_MBUF_F_RX_L4_CKSUM_GOOD ||
		transport == RTE_MBUF_F_RX_L4_CKSUM_NONE) &&
	       network != RTE_MBUF_F_RX_IP_CKSUM_BAD;
}

int shim_receive(uint16_t port, uint16_t queue, struct shim_frame *to, int max)
{
	struct rte_mbuf *in[SHIM_BURST];
	int count = rte_eth_rx_burst(port, queue, in, (uint16_t)RTE_MIN(max, SHIM_BURST));

	for (int i = 0; i < count; i++) {
		struct rte_mbuf *m = in[i];

		/* A tag that the port has not taken out. */
		to[i].vlan = m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED ? m->vlan_tci & 0xfff : 0;
		if (rte_vlan_strip(m) == 0)
			to[i].vlan = m->vlan_tci & 0xfff;
		to[i].mbuf = m;
		to[i].len = rte_pktmbuf_pkt_len(m);
		to[i].whole = m->nb_segs == 1 ? rte_pktmbuf_mtod(m, const void *) : NULL;
		to[i].checked = is_checked(m->ol_flags);
	}
	return count;
}

uint32_t shim_copy(const struct shim_frame *frame, void *into, uint32_t len)
{
	len = RTE_MIN(len, frame->len);
	const void *bytes = rte_pktmbuf_read(frame->mbuf, 0, len, into);

	if (bytes == NULL)
		return 0;
	if (bytes != into)
		memcpy(into, bytes, len);
	return len;
}

void shim_free(struct shim_frame *frames, int count)
{
	for (int i = 0; i < count; i++)
		rte_pktmbuf_free(frames[i].mbuf);
}

static struct rte_mbuf *gather(struct rte_mempool *pool, const struct shim_piece *pieces,
			       int count)
{
	struct rte_mbuf *first = NULL;

	for (int i = 0; i < count; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
		char *at = m == NULL ? NULL : rte_pktmbuf_append(m, (uint16_t)pieces[i].len);

		if (at == NULL || (first != NULL && rte_pktmbuf_chain(first, m) != 0)) {
			rte_pktmbuf_free(m);
			rte_pktmbuf_free(first);
			return NULL;
		}
		memcpy(at, pieces[i].data, pieces[i].len);
		if (first == NULL)
			first = m;
	}
	return first;
}

/* Leaves checksum and cutting to the port: it wants the lengths of the headers and the sum of the
 * pseudo header. All are read from the copy, and have to lie in its first piece. */
static int leave_to_port(struct rte_mbuf *m, const struct shim_offload *offload)
{
	uint16_t at = offload->transport_at;
	const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	uint16_t l3 = sizeof(*ether);
	uint16_t *sum;

	uint32_t sum_at = (uint32_t)at + offload->checksum_at;

	if (at < l3 + sizeof(struct rte_ipv4_hdr) || sum_at + sizeof(*sum) > m->data_len)
		return -EINVAL;
	sum = rte_pktmbuf_mtod_offset(m, uint16_t *, sum_at);
	m->l2_len = l3;
	m->l3_len = at - l3;
	if (ether->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)) {
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, l3);

		m->ol_flags |= RTE_MBUF_F_TX_IPV4;
		if (offload->mss) {
			ip->hdr_checksum = 0;
			m->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
		}
	} else {
		if (at < l3 + sizeof(struct rte_ipv6_hdr))
			return -EINVAL;
		m->ol_flags |= RTE_MBUF_F_TX_IPV6;
	}
	if (offload->checksum_at == offsetof(struct rte_udp_hdr, dgram_cksum)) {
		m->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	} else if (offload->mss == 0) {
		m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
	} else {
		const struct rte_tcp_hdr *tcp =
			rte_pktmbuf_mtod_offset(m, const struct rte_tcp_hdr *, at);

		m->l4_len = (tcp->data_off >> 4) * 4;
		m->tso_segsz = offload->mss;
		m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | RTE_MBUF_F_TX_TCP_SEG;
	}
	const void *ip = rte_pktmbuf_mtod_offset(m, const void *, l3);
	*sum = m->ol_flags & RTE_MBUF_F_TX_IPV4 ? rte_ipv4_phdr_cksum(ip, m->ol_flags)
						: rte_ipv6_phdr_cksum(ip, m->ol_flags);
	return 0;
}

int shim_send(uint16_t port, uint16_t queue, const struct shim_piece *pieces, int count,
	      const struct shim_offload *offload)
{
	struct queue *q = &queues[queue];

	if (q->out_count == OUT_MAX && shim_flush(port, queue) == OUT_MAX)
		return 0;
	struct rte_mbuf *m = gather(q->pool, pieces, count);
	if (m == NULL)
		return 0;
	int result = offload->transport_at ? leave_to_port(m, offload) : 0;
	if (result == 0 && offload->vlan) {
		m->vlan_tci = offload->vlan;
		result = rte_vlan_insert(&m);
		if (result == 0 && offload->transport_at)
			m->l2_len += sizeof(struct rte_vlan_hdr);
		m->ol_flags &= ~RTE_MBUF_F_TX_VLAN;
	}
	/* Some drivers count or fill in something before they are given the frame. */
	if (result == 0 && rte_eth_tx_prepare(port, queue, &m, 1) != 1)
		result = -rte_errno;
	if (result != 0) {
		rte_pktmbuf_free(m);
		return result;
	}
	q->out[q->out_count++] = m;
	return 1;
}

int shim_flush(uint16_t port, uint16_t queue)
{
	struct queue *q = &queues[queue];
	int sent = 0;

	while (sent < q->out_count) {
		uint16_t taken = rte_eth_tx_burst(port, queue, q->out + sent,
						  (uint16_t)(q->out_count - sent));

		if (taken == 0)
			break;
		sent += taken;
	}
	if (sent > 0 && sent < q->out_count)
		memmove(q->out, q->out + sent, (size_t)(q->out_count - sent) * sizeof(q->out[0]));
	q->out_count -= sent;
	return q->out_count;
}

int shim_give_up(uint16_t queue)
{
	struct queue *q = &queues[queue];
	int count = q->out_count;

	rte_pktmbuf_free_bulk(q->out, (unsigned int)count);
	q->out_count = 0;
	return count;
}

int shim_interrupt_fd(uint16_t port, uint16_t queue)
{
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

int shim_arm(uint16_t port, uint16_t queue, int on)
{
	if (is_always_armed)
		return 0;
	return on ? rte_eth_dev_rx_intr_enable(port, queue)
		  : rte_eth_dev_rx_intr_disable(port, queue);
}

uint64_t shim_missed(uint16_t port)
{
	struct rte_eth_stats stats;

	return rte_eth_stats_get(port, &stats) == 0 ? stats.imissed + stats.rx_nombuf : 0;
}

void shim_stop(uint16_t port)
{
	for (uint16_t queue = 0; queue < SHIM_QUEUES_MAX; queue++)
		shim_give_up(queue);
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	rte_eal_cleanup();
}
