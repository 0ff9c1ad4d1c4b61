/* The names of F-Stack's device layer that programs use. There is no DPDK underneath: the rest of
 * this header's functions is missing, and the reference of functions says why. */
#ifndef FF_DPDK_IF_H
#define FF_DPDK_IF_H

#include "ff_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name of port N among the stack's interfaces, which ff_ioctl takes too. */
#define ff_IF_NAME "f-stack-%d"

/* As ff_run and ff_stop_run. */
void ff_dpdk_run(loop_func_t loop, void *arg);
void ff_dpdk_stop(void);

#ifdef __cplusplus
}
#endif

#endif
