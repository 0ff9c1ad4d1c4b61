/* A program for F-Stack's adapter: libc's socket calls, and the library's kqueue and kevent. Echoes
 * on port 7200 by a thread that waits without limit; SIGTERM ends it by alarm_event_sem. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ff_adapter.h"
#include "ff_event.h"
#include "ff_hook_syscall.h"

static int kq, listener;
static volatile sig_atomic_t is_over;

static void end(int signal)
{
    (void)signal;
    is_over = 1;
    alarm_event_sem();
}

static void *echo(void *arg)
{
    struct kevent change, event;
    char bytes[512];
    (void)arg;
    while (!is_over) {
        int count = kevent(kq, NULL, 0, &event, 1, NULL), fd = (int)event.ident;
        if (count < 0 && errno == EINTR)
            continue;
        if (count != 1)
            exit(5);
        if (fd == listener) {
            int connection = accept(listener, NULL, NULL);
            if (!is_fstack_fd(connection))
                exit(3);
            EV_SET(&change, connection, EVFILT_READ, EV_ADD, 0, 0, NULL);
            kevent(kq, &change, 1, NULL, 0, NULL);
        } else if (event.flags & EV_EOF) {
            close(fd);
        } else {
            ssize_t got = read(fd, bytes, sizeof bytes);
            if (write(fd, bytes, (size_t)got) != got)
                exit(4);
        }
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_in address;
    struct kevent change;
    pthread_t thread;
    if (ff_adapter_init() < 0 || ff_adapter_child_process_init() < 0 || is_fstack_fd(0))
        return 1;
    if (!fstack_territory(AF_INET6, SOCK_DGRAM | SOCK_FSTACK | SOCK_NONBLOCK, 0) ||
        fstack_territory(AF_UNIX, SOCK_STREAM, 0) || fstack_territory(AF_INET, SOCK_RAW, 1))
        return 1;
    kq = kqueue();
    listener = socket(AF_INET, SOCK_STREAM | SOCK_FSTACK, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(7200);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0)
        return 1;
    EV_SET(&change, listener, EVFILT_READ, EV_ADD, 0, 0, NULL);
    if (kq < 0 || kevent(kq, &change, 1, NULL, 0, NULL) < 0)
        return 2;
    signal(SIGTERM, end);
    if (pthread_create(&thread, NULL, echo, NULL) != 0)
        return 2;
    /* A wait that began just after the alarm is ended by the next one. */
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        usleep(10000);
        if (is_over)
            alarm_event_sem();
    }
    return 0;
}
