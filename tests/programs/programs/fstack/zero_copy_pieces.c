/* Written as programs for F-Stack with FF_ZC_SEND are: an answer of 64 KiB in pieces of 1440 bytes,
 * sent at once. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>

#include "ff_api.h"
#include "ff_config.h"

#define LEN 65536
#define PIECE 1440
#define MAX_EVENTS 64
static char bytes[LEN];
static struct kevent set, events[MAX_EVENTS];
static int kq, listener;

static int answer(int fd)
{
    struct ff_zc_mbuf chain;
    int done = 0;
    if (ff_zc_mbuf_get(&chain, LEN) != 0)
        return -1;
    while (done < LEN) {
        int len = LEN - done > PIECE ? PIECE : LEN - done;
        int put = ff_zc_mbuf_write(&chain, bytes + done, len);
        if (put != len)
            return -1;
        done += put;
    }
    /* No more fits. */
    if (ff_zc_mbuf_write(&chain, bytes, 1) != -1)
        return -1;
    return (int)ff_write(fd, (const void *)chain.bsd_mbuf, LEN);
}

static int loop(void *arg)
{
    int count = ff_kevent(kq, NULL, 0, events, MAX_EVENTS, NULL);
    (void)arg;
    for (int i = 0; i < count; ++i) {
        int fd = (int)events[i].ident;
        char asked[256];
        if (events[i].flags & EV_EOF) {
            ff_close(fd);
        } else if (fd == listener) {
            int connection = ff_accept(fd, NULL, NULL);
            EV_SET(&set, connection, EVFILT_READ, EV_ADD, 0, 0, NULL);
            ff_kevent(kq, &set, 1, NULL, 0, NULL);
        } else if (events[i].filter == EVFILT_READ) {
            /* Bytes and a chain in one program: the first word is copied. */
            if (ff_read(fd, asked, sizeof asked) > 0 &&
                (ff_write(fd, "bytes:", 6) != 6 || answer(fd) != LEN))
                exit(3);
        }
    }
    return count;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in any;
    int on = 1;
    ff_init(argc, argv);
    memset(bytes, 'z', LEN);
    if ((kq = ff_kqueue()) < 0 || (listener = ff_socket(AF_INET, SOCK_STREAM, 0)) < 0)
        return 1;
    ff_ioctl(listener, FIONBIO, &on);
    bzero(&any, sizeof any);
    any.sin_family = AF_INET;
    any.sin_port = htons(80);
    if (ff_bind(listener, (const struct linux_sockaddr *)&any, sizeof any) < 0 ||
        ff_listen(listener, MAX_EVENTS) < 0)
        return 2;
    EV_SET(&set, listener, EVFILT_READ, EV_ADD, 0, MAX_EVENTS, NULL);
    ff_kevent(kq, &set, 1, NULL, 0, NULL);
    ff_run(loop, NULL);
    return 0;
}
