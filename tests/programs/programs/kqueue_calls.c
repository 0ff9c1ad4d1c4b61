/* What kqueue tells, filter by filter: prints a line for each thing that is asked, and ends with 0
 * if all were as on FreeBSD. The peer connects to port 7000, sends what it is told by lines on
 * standard output. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ff_api.h"

static int kq;
static int failures;

static void check(int holds, const char *what)
{
    if (!holds)
        failures++;
    printf("%s: %s (errno %d)\n", holds ? "ok" : "FAILED", what, errno);
    fflush(stdout);
}

static int change(uintptr_t ident, short filter, unsigned short flags, unsigned fflags,
                  int64_t data)
{
    struct kevent it;
    EV_SET(&it, ident, filter, flags, fflags, data, (void *)0x17);
    return ff_kevent(kq, &it, 1, NULL, 0, NULL);
}

static int next(struct kevent *event, int ms)
{
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000L};
    memset(event, 0, sizeof *event);
    return ff_kevent(kq, NULL, 0, event, 1, &wait);
}

static void user_events(void)
{
    struct kevent e;
    check(change(1, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0) == 0, "user event added");
    check(next(&e, 0) == 0, "it is silent");
    change(1, EVFILT_USER, 0, NOTE_TRIGGER | NOTE_FFOR | 5, 0);
    check(next(&e, 0) == 1 && e.filter == EVFILT_USER && e.fflags == 5 && e.udata == (void *)0x17,
          "triggered");
    check(next(&e, 0) == 0, "EV_CLEAR: once");
    check(change(1, EVFILT_USER, EV_DELETE, 0, 0) == 0, "deleted");
    check(change(1, EVFILT_USER, EV_DELETE, 0, 0) == -1 && errno == ENOENT, "gone is ENOENT");
    change(1, EVFILT_USER, EV_ADD | EV_DISPATCH, 0, 0);
    change(1, EVFILT_USER, 0, NOTE_TRIGGER, 0);
    check(next(&e, 0) == 1 && next(&e, 0) == 0, "EV_DISPATCH: once");
    change(1, EVFILT_USER, EV_ENABLE, 0, 0);
    check(next(&e, 0) == 1, "a trigger without EV_CLEAR stays");
    change(1, EVFILT_USER, EV_DELETE, 0, 0);
    check(change(1, 77, EV_ADD, 0, 0) == -1 && errno == EINVAL, "unknown filter is EINVAL");
    check(change(999, EVFILT_READ, EV_ADD, 0, 0) == -1 && errno == EBADF,
          "wrong descriptor is EBADF");
}

static void receipts(void)
{
    struct kevent it[2], out[2];
    EV_SET(&it[0], 999, EVFILT_READ, EV_ADD, 0, 0, NULL);
    EV_SET(&it[1], 2, EVFILT_USER, EV_ADD | EV_RECEIPT, 0, 0, NULL);
    check(ff_kevent(kq, it, 2, out, 2, NULL) == 2, "an error and a receipt are events");
    check(out[0].flags == EV_ERROR && out[0].data == ff_EBADF, "the error has FreeBSD's number");
    check(out[1].flags == EV_ERROR && out[1].data == 0, "the receipt has 0");
    change(2, EVFILT_USER, EV_DELETE, 0, 0);
}

static void timers(void)
{
    struct kevent e;
    check(change(1, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_MSECONDS, 20) == 0, "timer added");
    check(next(&e, 2000) == 1 && e.filter == EVFILT_TIMER && e.data == 1, "it fires once");
    check(next(&e, 40) == 0, "ONESHOT: no more");
    change(2, EVFILT_TIMER, EV_ADD, NOTE_USECONDS, 2000);
    usleep(20000);
    check(next(&e, 2000) == 1 && e.data >= 5, "a period counts what was missed");
    check(change(2, EVFILT_TIMER, EV_DELETE, 0, 0) == 0, "timer deleted");
    check(next(&e, 10) == 0, "and silent");
    check(change(3, EVFILT_TIMER, EV_ADD, 0, -1) == -1 && errno == EINVAL,
          "negative times are EINVAL");
}

static void one_event_of_each_note(void)
{
    struct kevent e[4];
    struct timespec wait = {1, 0};
    change(1, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0);
    change(5, EVFILT_TIMER, EV_ADD, NOTE_NSECONDS, 1);
    for (int i = 0; i < 20; i++) {
        int count = ff_kevent(kq, NULL, 0, e, 4, &wait);
        check(count == 1 || (count == 2 && e[0].ident != e[1].ident), "each note is told of once");
        usleep(500);
    }
    change(1, EVFILT_USER, EV_DELETE, 0, 0);
    change(5, EVFILT_TIMER, EV_DELETE, 0, 0);
    check(next(e, 0) == 0, "silence");
}

static void regular_files(void)
{
    struct kevent e;
    char name[] = "/tmp/kqueue-XXXXXX", bytes[8];
    int file = mkstemp(name);
    check(change(file, EVFILT_READ, EV_ADD, 0, 0) == 0 && next(&e, 0) == 0, "an empty file");
    check(pwrite(file, "abcd", 4, 0) == 4 && next(&e, 1000) == 1 && e.data == 4 &&
              (int)e.ident == file && e.filter == EVFILT_READ,
          "bytes to its end");
    check(read(file, bytes, 3) == 3 && next(&e, 0) == 1 && e.data == 1, "the level stays");
    check(read(file, bytes, 3) == 1 && next(&e, 0) == 0, "the end is silent");
    check(change(file, EVFILT_READ, EV_ADD, NOTE_FILE_POLL, 0) == 0 && next(&e, 0) == 1 &&
              e.data == 0,
          "NOTE_FILE_POLL: as poll says");
    check(change(file, EVFILT_READ, EV_DELETE, 0, 0) == 0 && next(&e, 0) == 0, "deleted");
    check(change(file, EVFILT_READ, EV_DELETE, 0, 0) == -1 && errno == ENOENT, "and gone");
    check(change(file, EVFILT_READ, EV_ADD | EV_CLEAR, 0, 0) == 0 && next(&e, 0) == 0,
          "at its end: silent");
    check(pwrite(file, "efg", 3, 4) == 3 && next(&e, 1000) == 1 && e.data == 3 && next(&e, 0) == 0,
          "EV_CLEAR: once for each write");
    check(change(file, EVFILT_WRITE, EV_ADD | EV_ONESHOT, 0, 0) == 0 && next(&e, 0) == 1 &&
              e.filter == EVFILT_WRITE && next(&e, 0) == 0,
          "a file may always be written");
    check(ff_close(file) == 0 && next(&e, 0) == 0, "closed");
    unlink(name);
}

static void kernel_descriptors(void)
{
    struct kevent e;
    int pair[2];
    if (pipe(pair) < 0)
        exit(1);
    check(change(pair[0], EVFILT_READ, EV_ADD, 0, 0) == 0, "a pipe is added");
    check(next(&e, 0) == 0, "nothing to read");
    check(write(pair[1], "abc", 3) == 3 && next(&e, 1000) == 1 && e.data == 3,
          "data is its length");
    check(next(&e, 0) == 1, "the level stays");
    change(pair[0], EVFILT_READ, EV_DISABLE, 0, 0);
    check(next(&e, 0) == 0, "disabled");
    change(pair[0], EVFILT_READ, EV_ENABLE, 0, 0);
    check(next(&e, 0) == 1, "enabled");
    close(pair[1]);
    check(next(&e, 1000) == 1 && e.flags & EV_EOF && e.data == 3, "EOF comes with what is left");
    change(pair[0], EVFILT_READ, EV_DELETE, 0, 0);
    check(next(&e, 0) == 0, "deleted");
    close(pair[0]);
}

static void signals_and_processes(void)
{
    struct kevent e;
    signal(SIGUSR1, SIG_IGN);
    check(change(SIGUSR1, EVFILT_SIGNAL, EV_ADD, 0, 0) == 0, "signal added");
    raise(SIGUSR1);
    raise(SIGUSR1);
    check(next(&e, 1000) == 1 && e.filter == EVFILT_SIGNAL && e.ident == SIGUSR1 && e.data == 2,
          "signals are counted");
    change(SIGUSR1, EVFILT_SIGNAL, EV_DELETE, 0, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    check(change(child, EVFILT_PROC, EV_ADD, NOTE_EXIT, 0) == 0, "process added");
    check(next(&e, 2000) == 1 && e.fflags == NOTE_EXIT && WEXITSTATUS(e.data) == 3,
          "its end and status");
    waitpid(child, NULL, 0);
    char name[] = "/tmp/kqueue-XXXXXX";
    int file = mkstemp(name);
    check(change(file, EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_WRITE | NOTE_DELETE, 0) == 0,
          "file added");
    check(write(file, "x", 1) == 1 && next(&e, 1000) == 1 && e.fflags & NOTE_WRITE, "a write");
    unlink(name);
    check(next(&e, 1000) == 1 && e.fflags & NOTE_DELETE, "its end");
    close(file);
}

/* Reads until the peer's line is complete. */
static void sockets(void)
{
    struct kevent e, it[2];
    struct sockaddr_in address;
    int on = 1;
    int listener = ff_socket(AF_INET, SOCK_STREAM, 0);
    ff_ioctl(listener, FIONBIO, &on);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(7000);
    check(ff_bind(listener, (struct linux_sockaddr *)&address, sizeof address) == 0, "bound");
    check(ff_listen(listener, 16) == 0, "listening");
    check(change(listener, EVFILT_READ, EV_ADD, 0, 0) == 0, "listener added");
    puts("go: connect two");
    fflush(stdout);
    do {
        check(next(&e, 5000) == 1 && e.data >= 1 && (int)e.ident == listener, "a connection waits");
    } while (failures == 0 && e.data < 2);
    int first = ff_accept(listener, NULL, NULL);
    int second = ff_accept(listener, NULL, NULL);
    check(first >= 0 && second >= 0, "both are accepted");
    check(next(&e, 0) == 0, "and none waits any more");
    EV_SET(&it[0], first, EVFILT_READ, EV_ADD, NOTE_LOWAT, 6, NULL);
    EV_SET(&it[1], first, EVFILT_WRITE, EV_ADD | EV_ONESHOT, 0, 0, NULL);
    check(ff_kevent(kq, it, 2, NULL, 0, NULL) == 0, "read and write of one socket");
    check(next(&e, 1000) == 1 && e.filter == EVFILT_WRITE && e.data > 1000, "room to write");
    check(next(&e, 0) == 0, "ONESHOT: once");
    puts("go: send abc on the first");
    fflush(stdout);
    check(next(&e, 300) == 0, "fewer than NOTE_LOWAT is nothing");
    puts("go: send def on the first");
    fflush(stdout);
    check(next(&e, 5000) == 1 && e.filter == EVFILT_READ && e.data == 6, "six are enough");
    check(next(&e, 0) == 1 && e.data == 6, "the level stays");
    char text[16];
    check(ff_read(first, text, sizeof text) == 6 && next(&e, 0) == 0, "read: silent");
    EV_SET(&it[0], second, EVFILT_READ, EV_ADD | EV_CLEAR, 0, 0, NULL);
    EV_SET(&it[1], second, EVFILT_WRITE, EV_ADD, 0, 0, NULL);
    ff_kevent(kq, it, 2, NULL, 0, NULL);
    puts("go: send abc on the second");
    fflush(stdout);
    int reads = 0, writes = 0;
    for (time_t end = time(NULL) + 5; time(NULL) < end && reads == 0;) {
        next(&e, 50);
        reads += e.filter == EVFILT_READ;
        writes += e.filter == EVFILT_WRITE;
        usleep(1000);
    }
    for (int i = 0; i < 20; i++) {
        next(&e, 0);
        reads += e.filter == EVFILT_READ;
        writes += e.filter == EVFILT_WRITE;
    }
    check(reads == 1 && writes > 1, "EV_CLEAR beside a level of the same socket");
    change(second, EVFILT_WRITE, EV_DELETE, 0, 0);
    change(second, EVFILT_READ, EV_ADD | EV_DISPATCH, 0, 0);
    puts("go: close the second");
    fflush(stdout);
    do {
        check(next(&e, 5000) == 1 && e.data == 3, "what has come is there");
    } while (failures == 0 && !(e.flags & EV_EOF));
    puts("go: reset the first");
    fflush(stdout);
    check(ff_close(second) == 0, "close takes its events along");
    check(next(&e, 5000) == 1 && (int)e.ident == first && e.flags & EV_EOF &&
              e.fflags == ff_ECONNRESET,
          "a reset is EOF with FreeBSD's error");
    ff_close(first);
    ff_close(listener);
}

int main(int argc, char *argv[])
{
    ff_init(argc, argv);
    kq = ff_kqueue();
    check(kq >= 0, "a kqueue");
    user_events();
    receipts();
    timers();
    one_event_of_each_note();
    regular_files();
    kernel_descriptors();
    signals_and_processes();
    sockets();
    puts(failures == 0 ? "all as on FreeBSD" : "some differ");
    return failures != 0;
}
