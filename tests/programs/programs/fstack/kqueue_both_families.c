/* Written as programs for F-Stack are: kqueue, IPv4 and IPv6 on one port, a log file of its own
 * through ff_log. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ff_api.h"
#include "ff_config.h"
#include "ff_log.h"
#include "page.h"

#define MAX_EVENTS 512
static struct kevent set, events[MAX_EVENTS];
static int kq, listener, listener6;

static void fail(const char *what)
{
    ff_log(FF_LOG_ERR, FF_LOGTYPE_FSTACK_APP, "%s failed, %d: %s\n", what, errno, strerror(errno));
    exit(1);
}

static int loop(void *arg)
{
    int count = ff_kevent(kq, NULL, 0, events, MAX_EVENTS, NULL);
    (void)arg;
    for (int i = 0; i < count; ++i) {
        int fd = (int)events[i].ident;
        if (events[i].flags & EV_EOF) {
            ff_close(fd);
        } else if (fd == listener || fd == listener6) {
            int waiting = (int)events[i].data;
            do {
                int connection = ff_accept(fd, NULL, NULL);
                if (connection < 0)
                    fail("ff_accept");
                EV_SET(&set, connection, EVFILT_READ, EV_ADD, 0, 0, NULL);
                if (ff_kevent(kq, &set, 1, NULL, 0, NULL) < 0)
                    fail("ff_kevent");
            } while (--waiting);
        } else if (events[i].filter == EVFILT_READ) {
            char bytes[1024];
            if (ff_read(fd, bytes, sizeof bytes) > 0 && ff_write(fd, page, sizeof page - 1) < 0)
                ff_close(fd);
        }
    }
    return count;
}

static int serve(int family, const struct sockaddr *address, socklen_t len)
{
    int on = 1, fd = ff_socket(family, SOCK_STREAM, 0);
    if (fd < 0 || ff_ioctl(fd, FIONBIO, &on) < 0)
        fail("ff_socket");
    if (ff_bind(fd, (const struct linux_sockaddr *)address, len) < 0)
        fail("ff_bind");
    if (ff_listen(fd, MAX_EVENTS) < 0)
        fail("ff_listen");
    EV_SET(&set, fd, EVFILT_READ, EV_ADD, 0, MAX_EVENTS, NULL);
    ff_kevent(kq, &set, 1, NULL, 0, NULL);
    return fd;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in any;
    struct sockaddr_in6 any6;
    ff_init(argc, argv);
    FILE *log = fopen(getenv("LOG_FILE"), "a");
    if (!log || ff_log_reset_stream(log) != 0)
        return 1;
    ff_log_close();
    ff_log_set_global_level(FF_LOG_DEBUG);
    ff_log_set_level(FF_LOGTYPE_FSTACK_APP, FF_LOG_DEBUG);
    if ((kq = ff_kqueue()) < 0)
        fail("ff_kqueue");
    bzero(&any, sizeof any);
    any.sin_family = AF_INET;
    any.sin_port = htons(PORT);
    listener = serve(AF_INET, (struct sockaddr *)&any, sizeof any);
    bzero(&any6, sizeof any6);
    any6.sin6_family = AF_INET6;
    any6.sin6_port = htons(PORT);
    listener6 = serve(AF_INET6, (struct sockaddr *)&any6, sizeof any6);
    ff_log(FF_LOG_INFO, FF_LOGTYPE_FSTACK_APP, "sockfd:%d\n", listener);
    ff_run(loop, NULL);
    return 0;
}
