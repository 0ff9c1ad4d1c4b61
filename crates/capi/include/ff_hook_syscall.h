/* kqueue and kevent for programs that are linked with F-Stack's adapter, libff_syscall.so. All
 * other calls are libc's, by their own names. */
#ifndef FF_HOOK_SYSCALL_H
#define FF_HOOK_SYSCALL_H

#include <time.h>

#include "ff_event.h"

#ifdef __cplusplus
extern "C" {
#endif

int kqueue(void);
/* Waits as long as `timeout` says, NULL for ever. */
int kevent(int kq, const struct kevent *changelist, int nchanges, struct kevent *eventlist,
           int nevents, const struct timespec *timeout);

#ifdef __cplusplus
}
#endif

#endif
