/* Clocks, memory and the like: libc's, by F-Stack's names. */
#ifndef FF_HOST_INTERFACE_H
#define FF_HOST_INTERFACE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ff_PROT_NONE 0x00
#define ff_PROT_READ 0x01
#define ff_PROT_WRITE 0x02
#define ff_MAP_SHARED 0x0001
#define ff_MAP_PRIVATE 0x0002
#define ff_MAP_ANON 0x1000
#define ff_MAP_NOCORE 0x00020000
#define ff_MAP_FAILED ((void *)-1)

/* Flags by either name, ff_MAP_ or Linux's. */
void *ff_mmap(void *addr, uint64_t len, int prot, int flags, int fd, uint64_t offset);
int ff_munmap(void *addr, uint64_t len);
void *ff_malloc(size_t size);
void *ff_calloc(size_t number, size_t size);
void *ff_realloc(void *p, size_t size);
void ff_free(void *p);

#define ff_CLOCK_REALTIME 0
#define ff_CLOCK_MONOTONIC 4
#define ff_CLOCK_MONOTONIC_FAST 12
#define ff_NSEC_PER_SEC (1000ULL * 1000ULL * 1000ULL)

/* Every clock but ff_CLOCK_REALTIME is the monotonic one. */
void ff_clock_gettime(int id, int64_t *sec, long *nsec);
uint64_t ff_clock_gettime_ns(int id);
uint64_t ff_get_tsc_ns(void);
void ff_get_current_time(int64_t *sec, long *nsec);
uint32_t ff_arc4random(void);
int ff_setenv(const char *name, const char *value);
char *ff_getenv(const char *name);
/* Sets errno to Linux's number of an error that is given by FreeBSD's. */
void ff_os_errno(int error);
/* Whether a flow comes to this process. Addresses and ports are given out so that it does:
 * always 1. */
int ff_rss_check(void *softc, uint32_t saddr, uint32_t daddr, uint16_t sport, uint16_t dport);

#ifdef __cplusplus
}
#endif

#endif
