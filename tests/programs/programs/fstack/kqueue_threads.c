/* Written for F-Stack's adapter and linked with it: each thread has its socket and its kqueue. */
#include "threads.h"

#include "ff_adapter.h"
#include "ff_event.h"
#include "ff_hook_syscall.h"

static void *work(void *arg)
{
    struct kevent change, events[64];
    int listener = listening(SOCK_FSTACK), kq = kqueue();
    if (kq < 0)
        fail("kqueue");
    EV_SET(&change, listener, EVFILT_READ, EV_ADD, 0, 512, NULL);
    if (kevent(kq, &change, 1, NULL, 0, NULL) < 0)
        fail("kevent");
    for (;;) {
        int count = kevent(kq, NULL, 0, events, 64, NULL);
        for (int i = 0; i < count; ++i) {
            int fd = (int)events[i].ident;
            if (fd != listener) {
                serve(fd);
                continue;
            }
            for (int waiting = (int)events[i].data; waiting > 0; --waiting) {
                EV_SET(&change, accept(listener, NULL, NULL), EVFILT_READ, EV_ADD, 0, 0, NULL);
                kevent(kq, &change, 1, NULL, 0, NULL);
            }
        }
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i)
        pthread_create(&threads[i], NULL, work, NULL);
    pthread_join(threads[0], NULL);
    return 0;
}
