/* Limits of F-Stack's configuration, and the file that is in force. The options themselves are
 * Slipstack's. */
#ifndef FF_CONFIG_H
#define FF_CONFIG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DPDK_CONFIG_NUM 16
#define DPDK_CONFIG_MAXLEN 256
#define DPDK_MAX_LCORE 128
#define DPDK_MAX_VLAN_FILTER 128
#define VIP_MAX_NUM 64
#define MAX_PKT_BURST 32
#define BURST_TX_DRAIN_US 100
#define PCAP_SNAP_MINLEN 94
#define PCAP_SAVE_MINLEN (8 * 1024 * 1024)
/* Limits of packets to the kernel that F-Stack has built in; [kni] of config.ini sets them here. */
#define KNI_RATELIMT_PROCESS 10000
#define KNI_RATELIMT_GENERAL 1000
#define KNI_RATELIMT_CONSOLE 9000
#define KNI_RATELIMT_KERNEL 20000
#define FF_RSS_TBL_MAX_SADDR 4
#define FF_RSS_TBL_MAX_SPORT 4
#define FF_RSS_TBL_MAX_DADDR 4
#define FF_RSS_TBL_MAX_ENTRIES 64

struct ff_config {
    const char *filename; /* NULL: there is none */
    struct {
        const char *proc_type;
        int proc_id;
        int nb_procs;
    } dpdk;
};

/* Filled in by ff_init, and by ff_load_config. */
extern struct ff_config ff_global_cfg;

/* Reads the arguments of ff_init and the file that they name, without a stack. Returns 0; -1 after
 * a sentence on standard error. ff_init needs no such call before it. */
int ff_load_config(int argc, char *const argv[]);

/* Arguments of DPDK's EAL: there is none, so 0 and NULL. */
extern int dpdk_argc;
extern char *dpdk_argv[DPDK_CONFIG_NUM + 1];

#ifdef __cplusplus
}
#endif

#endif
