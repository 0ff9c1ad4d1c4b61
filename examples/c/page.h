/* Parts of the web servers beside this file: the page, a listener on port 80, and signals that end
 * ff_run. SERVER is the name that the page's header has.
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "ff_api.h"

#define PAGE(connection)             \
    "HTTP/1.1 200 OK\r\n"            \
    "Server: " SERVER "\r\n"         \
    "Content-Type: text/plain\r\n"   \
    "Content-Length: 21\r\n"         \
    "Connection: " connection "\r\n" \
    "\r\n"                           \
    "hello from the stack\n"

static const char page[] = PAGE("keep-alive");
static const char last_page[] = PAGE("close");

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Returns whether the connection goes on. request has room for a zero behind its len bytes. */
static int answer(int fd, char *request, size_t len)
{
    request[len] = 0;
    if (strstr(request, " HTTP/1.0\r\n") == NULL)
        return ff_write(fd, page, sizeof page - 1) > 0;
    ff_write(fd, last_page, sizeof last_page - 1);
    return 0;
}

static int listen_on(uint16_t port)
{
    int on = 1;
    struct sockaddr_in address;
    int listener = ff_socket(AF_INET, SOCK_STREAM, 0);

    if (listener < 0)
        fail("ff_socket");
    ff_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ff_ioctl(listener, FIONBIO, &on);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    if (ff_bind(listener, (struct linux_sockaddr *)&address, sizeof address) < 0)
        fail("ff_bind");
    if (ff_listen(listener, 512) < 0)
        fail("ff_listen");
    return listener;
}

static void on_signal(int signal)
{
    (void)signal;
    ff_stop_run();
}

static void run_until_a_signal(int (*loop)(void *))
{
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    ff_run(loop, NULL);
}
