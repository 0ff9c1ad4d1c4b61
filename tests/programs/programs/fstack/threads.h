/* Threads that each have a listener of their own on one port; with PORT_OF_INSTANCE they do not ask
 * for sharing it. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "page.h"

#define SOCK_FSTACK 0x01000000
#define SOCK_KERNEL 0x02000000
#ifndef THREADS
#define THREADS 2
#endif

static void fail(const char *what)
{
    printf("%s failed, %d: %s\n", what, errno, strerror(errno));
    exit(1);
}

static int listening(int kind)
{
    struct sockaddr_in any;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | kind, 0);
    if (fd < 0)
        fail("socket");
#ifndef PORT_OF_INSTANCE
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
#endif
    ioctl(fd, FIONBIO, &on);
    memset(&any, 0, sizeof any);
    any.sin_family = AF_INET;
    any.sin_port = htons(PORT);
    if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0)
        fail("bind");
    if (listen(fd, 512) < 0)
        fail("listen");
    return fd;
}

/* One answer; 0: the connection has ended. */
static int serve(int fd)
{
    char bytes[1024];
    ssize_t got = read(fd, bytes, sizeof bytes);
    if (got > 0 && write(fd, page, sizeof page - 1) == (ssize_t)sizeof page - 1)
        return 1;
    close(fd);
    return 0;
}
