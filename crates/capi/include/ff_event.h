/* kqueue and kevent: structures and constants of FreeBSD's interface. */
#ifndef FF_EVENT_H
#define FF_EVENT_H

#include <stddef.h>
#include <stdint.h>

struct kevent {
    uintptr_t ident;       /* what is watched: a descriptor, signal, process or timer */
    short filter;          /* EVFILT_ */
    unsigned short flags;  /* EV_ */
    unsigned int fflags;   /* NOTE_, or an error of FreeBSD's numbers */
    int64_t data;
    void *udata;           /* the program's, given back with each event */
    uint64_t ext[4];
};

#ifdef _WANT_FREEBSD11_KEVENT
struct kevent_freebsd11 {
    uintptr_t ident;
    short filter;
    unsigned short flags;
    unsigned int fflags;
    intptr_t data;
    void *udata;
};
#endif

#ifdef _WANT_KEVENT32
struct kevent32 {
    uint32_t ident;
    short filter;
    unsigned short flags;
    uint32_t fflags;
    uint32_t data1, data2;
    uint32_t udata;
    uint32_t ext64[8];
};
#endif

#define EVFILT_READ (-1)
#define EVFILT_WRITE (-2)
#define EVFILT_AIO (-3)
#define EVFILT_VNODE (-4)
#define EVFILT_PROC (-5)
#define EVFILT_SIGNAL (-6)
#define EVFILT_TIMER (-7)
#define EVFILT_PROCDESC (-8)
#define EVFILT_FS (-9)
#define EVFILT_LIO (-10)
#define EVFILT_USER (-11)
#define EVFILT_SENDFILE (-12)
#define EVFILT_EMPTY (-13)
#define EVFILT_SYSCOUNT 13

/* Actions. */
#define EV_ADD 0x0001
#define EV_DELETE 0x0002
#define EV_ENABLE 0x0004
#define EV_DISABLE 0x0008
#define EV_FORCEONESHOT 0x0100

/* How an event is told. */
#define EV_ONESHOT 0x0010
#define EV_CLEAR 0x0020
#define EV_RECEIPT 0x0040
#define EV_DISPATCH 0x0080

#define EV_SYSFLAGS 0xF000
#define EV_DROP 0x1000
#define EV_FLAG1 0x2000
#define EV_FLAG2 0x4000

/* What comes back. */
#define EV_EOF 0x8000
#define EV_ERROR 0x4000

/* EVFILT_USER */
#define NOTE_FFNOP 0x00000000
#define NOTE_FFAND 0x40000000
#define NOTE_FFOR 0x80000000
#define NOTE_FFCOPY 0xc0000000
#define NOTE_FFCTRLMASK 0xc0000000
#define NOTE_FFLAGSMASK 0x00ffffff
#define NOTE_TRIGGER 0x01000000

/* EVFILT_READ and EVFILT_WRITE */
#define NOTE_LOWAT 0x0001
#define NOTE_FILE_POLL 0x0002

/* EVFILT_VNODE */
#define NOTE_DELETE 0x0001
#define NOTE_WRITE 0x0002
#define NOTE_EXTEND 0x0004
#define NOTE_ATTRIB 0x0008
#define NOTE_LINK 0x0010
#define NOTE_RENAME 0x0020
#define NOTE_REVOKE 0x0040
#define NOTE_OPEN 0x0080
#define NOTE_CLOSE 0x0100
#define NOTE_CLOSE_WRITE 0x0200
#define NOTE_READ 0x0400

/* EVFILT_PROC */
#define NOTE_EXIT 0x80000000
#define NOTE_FORK 0x40000000
#define NOTE_EXEC 0x20000000
#define NOTE_PCTRLMASK 0xf0000000
#define NOTE_PDATAMASK 0x000fffff
#define NOTE_TRACK 0x00000001
#define NOTE_TRACKERR 0x00000002
#define NOTE_CHILD 0x00000004

/* EVFILT_TIMER; without a unit the time is in milliseconds. */
#define NOTE_SECONDS 0x00000001
#define NOTE_MSECONDS 0x00000002
#define NOTE_USECONDS 0x00000004
#define NOTE_NSECONDS 0x00000008
#define NOTE_ABSTIME 0x00000010

#define EV_SET(kevp, a, b, c, d, e, f)      \
    do {                                    \
        struct kevent *ff_kevp_ = (kevp);   \
        ff_kevp_->ident = (uintptr_t)(a);   \
        ff_kevp_->filter = (short)(b);      \
        ff_kevp_->flags = (unsigned short)(c); \
        ff_kevp_->fflags = (unsigned int)(d); \
        ff_kevp_->data = (int64_t)(e);      \
        ff_kevp_->udata = (f);              \
        ff_kevp_->ext[0] = 0;               \
        ff_kevp_->ext[1] = 0;               \
        ff_kevp_->ext[2] = 0;               \
        ff_kevp_->ext[3] = 0;               \
    } while (0)

#endif
