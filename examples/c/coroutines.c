/* Micro-threads: a function for each connection that seems to block, on a stack of its own.
 * Where a call would block, another one runs, and all wait in one kqueue. A line is echoed,
 * "sleep MS" after MS milliseconds; an idle connection is closed after IDLE_MS.
 *     coroutines --ip 10.0.0.5/24 --if eth1 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include "slipstack.h"

enum { PORT = 7, STACK = 64 * 1024, IDLE_MS = 1000 };
struct task {
    ucontext_t own, resumer;
    void (*body)(int fd);
    int fd, woken_by, is_over;
    char stack[STACK];
};

static struct task *current;
static int kq;

static void resume(struct task *task)
{
    struct task *resumer = current;
    current = task;
    swapcontext(&task->resumer, &task->own);
    current = resumer;
    if (task->is_over)
        free(task);
}

static void begin(void)
{
    current->body(current->fd);
    current->is_over = 1;
}

static void start(void (*body)(int), int fd)
{
    struct task *task = (struct task *)calloc(1, sizeof *task);
    if (!task || getcontext(&task->own) < 0)
        abort();
    task->body = body;
    task->fd = fd;
    task->own.uc_stack.ss_sp = task->stack;
    task->own.uc_stack.ss_size = STACK;
    task->own.uc_link = &task->resumer;
    makecontext(&task->own, begin, 0);
    resume(task);
}

/* Waits for `filter` on `fd`; -1 and ETIMEDOUT after `ms`. ms -1: no limit; fd -1: sleeps. */
static int task_wait(int fd, int filter, int ms)
{
    struct task *own = current;
    struct kevent changes[2];
    int count = 0;
    if (fd >= 0)
        EV_SET(&changes[count++], (uintptr_t)fd, (short)filter, EV_ADD | EV_ONESHOT, 0, 0, own);
    if (ms >= 0)
        EV_SET(&changes[count++], (uintptr_t)own, EVFILT_TIMER, EV_ADD | EV_ONESHOT, 0, ms, own);
    if (ff_kevent(kq, changes, count, NULL, 0, NULL) < 0)
        abort();
    swapcontext(&own->own, &own->resumer);
    int is_late = own->woken_by == EVFILT_TIMER;
    changes[is_late ? 0 : 1].flags = EV_DELETE; /* the event that did not occur */
    if (count == 2)
        ff_kevent(kq, &changes[is_late ? 0 : 1], 1, NULL, 0, NULL);
    errno = ETIMEDOUT;
    return is_late ? -1 : 0;
}

static ssize_t task_read(int fd, void *at, size_t len, int ms)
{
    ssize_t got;
    while ((got = ff_read(fd, at, len)) < 0 && errno == EAGAIN)
        if (task_wait(fd, EVFILT_READ, ms) < 0)
            return -1;
    return got;
}

static ssize_t task_write(int fd, const void *at, size_t len)
{
    ssize_t sent;
    while ((sent = ff_write(fd, at, len)) < 0 && errno == EAGAIN)
        task_wait(fd, EVFILT_WRITE, -1);
    return sent;
}

static void talk(int fd)
{
    char line[512];
    ssize_t got;
    while ((got = task_read(fd, line, sizeof line - 1, IDLE_MS)) > 0) {
        line[got] = 0;
        if (strncmp(line, "sleep ", 6) == 0)
            task_wait(-1, 0, atoi(line + 6));
        task_write(fd, line, (size_t)got);
    }
    if (got < 0 && errno == ETIMEDOUT)
        task_write(fd, "idle\n", 5);
    ff_close(fd);
}

static void take_all(int fd)
{
    int connection;
    for (;; task_wait(fd, EVFILT_READ, -1))
        while ((connection = ff_accept(fd, NULL, NULL)) >= 0)
            start(talk, connection);
}

/* One event at a time: a resumed task removes the other event that it has waited for. */
static int loop(void *arg)
{
    struct kevent event;
    struct task *task = (struct task *)arg;
    if (ff_kevent(kq, NULL, 0, &event, 1, NULL) != 1)
        return 0;
    if (!(task = (struct task *)event.udata))
        return ff_stop_run(), 0;
    task->woken_by = event.filter;
    resume(task);
    return 0;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in address;
    struct kevent end;
    ff_init(argc, argv);
    int listener = ff_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(PORT);
    if (ff_bind(listener, (struct linux_sockaddr *)&address, sizeof address) < 0 ||
        ff_listen(listener, 511) < 0 || (kq = ff_kqueue()) < 0) {
        return perror("port 7"), 1;
    }
    signal(SIGTERM, SIG_IGN);
    EV_SET(&end, SIGTERM, EVFILT_SIGNAL, EV_ADD, 0, 0, NULL);
    ff_kevent(kq, &end, 1, NULL, 0, NULL);
    start(take_all, listener);
    ff_run(loop, NULL);
    return 0;
}
