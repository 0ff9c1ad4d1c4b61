/* The log of programs: a line has a type and a level, and is written if both say so. */
#ifndef FF_LOG_H
#define FF_LOG_H

#include <stdarg.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FF_LOGTYPE_EAL 0
#define FF_LOGTYPE_MALLOC 1
#define FF_LOGTYPE_RING 2
#define FF_LOGTYPE_MEMPOOL 3
#define FF_LOGTYPE_TIMER 4
#define FF_LOGTYPE_PMD 5
#define FF_LOGTYPE_HASH 6
#define FF_LOGTYPE_LPM 7
#define RTE_LOGTYPE_KNI 8
#define FF_LOGTYPE_ACL 9
#define FF_LOGTYPE_POWER 10
#define FF_LOGTYPE_METER 11
#define FF_LOGTYPE_SCHED 12
#define FF_LOGTYPE_PORT 13
#define FF_LOGTYPE_TABLE 14
#define FF_LOGTYPE_PIPELINE 15
#define FF_LOGTYPE_MBUF 16
#define FF_LOGTYPE_CRYPTODEV 17
#define FF_LOGTYPE_EFD 18
#define FF_LOGTYPE_EVENTDEV 19
#define FF_LOGTYPE_GSO 20
#define FF_LOGTYPE_USER1 24
#define FF_LOGTYPE_USER2 25
#define FF_LOGTYPE_USER3 26
#define FF_LOGTYPE_USER4 27
#define FF_LOGTYPE_USER5 28
#define FF_LOGTYPE_USER6 29
#define FF_LOGTYPE_USER7 30
#define FF_LOGTYPE_USER8 31
#define FF_LOGTYPE_FIRST_EXT_ID 32
#define FF_LOGTYPE_FSTACK_APP FF_LOGTYPE_USER1
#define FF_LOGTYPE_FSTACK_LIB FF_LOGTYPE_USER7
#define FF_LOGTYPE_FSTACK_FREEBSD FF_LOGTYPE_USER8

#define FF_LOG_DISABLE 0U
#define FF_LOG_EMERG 1U
#define FF_LOG_ALERT 2U
#define FF_LOG_CRIT 3U
#define FF_LOG_ERR 4U
#define FF_LOG_WARNING 5U
#define FF_LOG_NOTICE 6U
#define FF_LOG_INFO 7U
#define FF_LOG_DEBUG 8U
#define FF_LOG_MAX FF_LOG_DEBUG

/* The log's file is this, the process's number and ".log". */
extern char FF_LOG_FILENAME_PREFIX[];

/* Opens the file and writes there, with the level of --log (fstack_log_level in config.ini) for
 * FF_LOGTYPE_FSTACK_LIB and FF_LOGTYPE_FSTACK_FREEBSD; closes it. */
int ff_log_open_set(void);
void ff_log_close(void);
/* Writes to this FILE from now on. */
int ff_log_reset_stream(void *f);
void ff_log_set_global_level(uint32_t level);
int ff_log_set_level(uint32_t logtype, uint32_t level);
int ff_vlog(uint32_t level, uint32_t logtype, const char *format, va_list ap);

/* Returns what vfprintf does, and 0 for a line that is not wanted. */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static inline int ff_log(uint32_t level, uint32_t logtype, const char *format, ...)
{
    va_list ap;
    int written;
    va_start(ap, format);
    written = ff_vlog(level, logtype, format, ap);
    va_end(ap);
    return written;
}

#ifdef __cplusplus
}
#endif

#endif
