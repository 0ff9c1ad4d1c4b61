/* A kqueue with timers, user events and kernel descriptors, inside of two kqueues and an epoll set:
 * each of them tells of it for as long as it has events. Ends with the number of failed checks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ff_api.h"
#include "ff_epoll.h"

static int failures, inner, outer, other, set;

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("FAILED: %s (errno %d)\n", what, errno);
        failures++;
    }
}

static int change(int kq, uintptr_t ident, short filter, unsigned short flags, int64_t data)
{
    struct kevent it;
    EV_SET(&it, ident, filter, flags, 0, data, NULL);
    return ff_kevent(kq, &it, 1, NULL, 0, NULL);
}

static int events(int kq, int ms)
{
    struct kevent found[8];
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000L};
    return ff_kevent(kq, NULL, 0, found, 8, &wait);
}

static void all_tell(const char *what)
{
    struct epoll_event event;
    check(events(outer, 5000) == 1, what);
    check(events(outer, 0) == 1, "the level stays");
    check(events(other, 5000) == 1, "another one that it is in");
    check(ff_epoll_wait(set, &event, 1, 5000) == 1 && event.data.fd == inner, "an epoll set");
    check(events(inner, 0) == 1, "the event itself");
}

static void all_are_silent(void)
{
    struct epoll_event event;
    check(events(inner, 0) == 0 && events(outer, 0) == 0 && events(other, 0) == 0 &&
              ff_epoll_wait(set, &event, 1, 0) == 0,
          "silence");
}

static void descriptors(void)
{
    char byte;
    int pair[2];
    check(pipe(pair) == 0 && change(inner, (uintptr_t)pair[0], EVFILT_READ, EV_ADD, 0) == 0,
          "a pipe is added");
    all_are_silent();
    check(write(pair[1], "x", 1) == 1, "a byte");
    all_tell("a pipe");
    all_tell("a pipe whose byte is not read");
    check(read(pair[0], &byte, 1) == 1, "it is read");
    all_are_silent();
    check(change(outer, (uintptr_t)inner, EVFILT_READ, EV_DISABLE, 0) == 0, "disabled");
    check(write(pair[1], "x", 1) == 1 && events(outer, 10) == 0, "and silent");
    check(change(outer, (uintptr_t)inner, EVFILT_READ, EV_ENABLE, 0) == 0, "enabled");
    all_tell("a pipe that was ready before");
    close(pair[0]);
    close(pair[1]);
    all_are_silent();
}

int main(int argc, char *argv[])
{
    struct epoll_event event;
    ff_init(argc, argv);
    inner = ff_kqueue();
    outer = ff_kqueue();
    other = ff_kqueue();
    set = ff_epoll_create(1);
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.fd = inner;
    check(change(outer, (uintptr_t)inner, EVFILT_READ, EV_ADD, 0) == 0, "a queue in a queue");
    check(change(other, (uintptr_t)inner, EVFILT_READ, EV_ADD, 0) == 0, "and in another one");
    check(ff_epoll_ctl(set, EPOLL_CTL_ADD, inner, &event) == 0, "and in a set");
    check(change(inner, (uintptr_t)outer, EVFILT_READ, EV_ADD, 0) == -1, "no loop");
    for (int i = 0; i < 3; i++) {
        all_are_silent();
        change(inner, 9, EVFILT_TIMER, EV_ADD | EV_ONESHOT, 10);
        all_tell("a timer");
        all_are_silent();
        change(inner, 9, EVFILT_TIMER, EV_ADD | EV_ONESHOT, 1);
        usleep(20000);
        all_tell("a timer that has expired");
        descriptors();
    }
    printf("%d failed\n", failures);
    return failures;
}
