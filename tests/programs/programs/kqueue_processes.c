/* Forks, new programs and ends of processes as kqueue tells them. Ends with the number of failed
 * checks, with 77 where the kernel allows nobody to ask (perf_event_paranoid). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ff_api.h"

static int failures, kq;

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("FAILED: %s (errno %d)\n", what, errno);
        failures++;
    }
}

static int watch(pid_t process, unsigned notes)
{
    struct kevent it;
    EV_SET(&it, (uintptr_t)process, EVFILT_PROC, EV_ADD, notes, 0, (void *)0x18);
    return ff_kevent(kq, &it, 1, NULL, 0, NULL);
}

static struct kevent next(void)
{
    struct kevent event;
    struct timespec wait = {10, 0};
    memset(&event, 0, sizeof event);
    if (ff_kevent(kq, NULL, 0, &event, 1, &wait) != 1)
        event.filter = 0;
    return event;
}

/* A child that does its work when it has been let go. */
static pid_t child(void (*work)(void), int *go)
{
    int pair[2];
    if (pipe(pair) < 0)
        exit(1);
    pid_t made = fork();
    if (made == 0) {
        char byte;
        close(pair[1]);
        if (read(pair[0], &byte, 1) < 0)
            _exit(1);
        work();
        _exit(3);
    }
    close(pair[0]);
    *go = pair[1];
    return made;
}

static void become_true(void) { execl("/bin/true", "true", NULL); }

static void fork_once(void)
{
    pid_t made = fork();
    if (made == 0)
        _exit(0);
    waitpid(made, NULL, 0);
}

static void fork_and_become(void)
{
    pid_t made = fork();
    if (made == 0)
        become_true();
    waitpid(made, NULL, 0);
}

static void finish(pid_t process, int status)
{
    struct kevent e = next();
    check((pid_t)e.ident == process && e.fflags == NOTE_EXIT && e.flags & EV_EOF &&
              WEXITSTATUS(e.data) == status && e.udata == (void *)0x18,
          "the end and the status");
    check(waitpid(process, NULL, 0) == process, "it is over");
}

static void execs_and_forks(void)
{
    int go;
    pid_t made = child(become_true, &go);
    check(watch(made, NOTE_EXEC | NOTE_EXIT) == 0, "a process that becomes another program");
    close(go);
    struct kevent e = next();
    check((pid_t)e.ident == made && e.fflags & NOTE_EXEC, "it has become one");
    if (!(e.fflags & NOTE_EXIT))
        finish(made, 0);
    else
        waitpid(made, NULL, 0);
    made = child(fork_once, &go);
    check(watch(made, NOTE_FORK) == 0, "a process that forks");
    close(go);
    e = next();
    check((pid_t)e.ident == made && e.fflags == NOTE_FORK, "it has forked");
    check(waitpid(made, NULL, 0) == made, "and ends, of which it is not told");
    struct timespec none = {0, 50000000};
    check(ff_kevent(kq, NULL, 0, &e, 1, &none) == 0, "silence");
}

static void children_are_tracked(void)
{
    int go, has_begun = 0, has_become = 0, has_ended = 0, is_over = 0;
    pid_t made = child(fork_and_become, &go), of_it = 0;
    check(watch(made, NOTE_TRACK | NOTE_EXEC | NOTE_EXIT) == 0, "a process with its children");
    close(go);
    while (!(has_ended && is_over)) {
        struct kevent e = next();
        if (e.filter == 0)
            break;
        if ((pid_t)e.ident == made) {
            is_over = e.fflags == NOTE_EXIT && WEXITSTATUS(e.data) == 3;
        } else if (e.fflags == NOTE_CHILD) {
            has_begun = (pid_t)e.data == made && e.udata == (void *)0x18;
            of_it = (pid_t)e.ident;
        } else {
            check((pid_t)e.ident == of_it, "a child that was announced");
            has_become |= (e.fflags & NOTE_EXEC) != 0;
            has_ended |= (e.fflags & NOTE_EXIT) != 0;
        }
    }
    check(has_begun, "a child is announced with its parent");
    check(has_become && has_ended, "it becomes a program and ends");
    check(is_over, "its parent ends");
    waitpid(made, NULL, 0);
}

int main(int argc, char *argv[])
{
    ff_init(argc, argv);
    kq = ff_kqueue();
    if (watch(getpid(), NOTE_FORK) == -1 && errno != EINVAL)
        return 77;
    struct kevent it;
    EV_SET(&it, (uintptr_t)getpid(), EVFILT_PROC, EV_DELETE, 0, 0, NULL);
    check(ff_kevent(kq, &it, 1, NULL, 0, NULL) == 0, "no longer watched");
    check(watch(getpid(), 0x100) == -1 && errno == EINVAL, "no such note");
    check(watch(0x7ffffff0, NOTE_EXIT) == -1 && errno == ESRCH, "no such process");
    execs_and_forks();
    children_are_tracked();
    printf("%d failed\n", failures);
    return failures;
}
