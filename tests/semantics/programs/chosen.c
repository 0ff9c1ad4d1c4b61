/* SOCK_FSTACK and SOCK_KERNEL in the type of a socket (F-Stack's), which the kernel does not know:
 * there they are left out here. One port twice, for the stack and for the kernel. */
#include "t.h"

static int on_kernel(void) { return !strstr(getenv("LD_PRELOAD") ?: "", "slipstack"); }

#define SOCK_FSTACK 0x01000000
#define SOCK_KERNEL 0x02000000

static int made(int type) { return socket(AF_INET, on_kernel() ? type & 0xf : type, 0); }

static void one(int listening, const char *ip, int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char byte;
    SAY(connect_to(fd, ip, port));
    readable(listening);
    int got = OPEN(accept(listening, 0, 0));
    SAY(write(got, "x", 1));
    SAY(read(fd, &byte, 1));
    close(got), close(fd);
}

static int listening(int type, const char *ip, int port) {
    int fd = made(type);
    SAY(bind_to(fd, ip, port));
    SAY(listen(fd, 8));
    return fd;
}

int main(void) {
    close(OPEN(made(SOCK_STREAM | SOCK_FSTACK)));
    close(OPEN(made(SOCK_DGRAM | SOCK_FSTACK | SOCK_KERNEL)));
    close(OPEN(epoll_create(512 | SOCK_FSTACK)));
    close(OPEN(epoll_create(512 | SOCK_KERNEL)));

    NOTE("a wildcard on the stack first");
    int stack, kernel;
    if (on_kernel()) {
        stack = listening(SOCK_STREAM, own_ip(), 8551),
        kernel = listening(SOCK_STREAM, "127.0.0.1", 8551);
    } else {
        stack = listening(SOCK_STREAM, "0.0.0.0", 8551),
        kernel = listening(SOCK_STREAM | SOCK_KERNEL, "0.0.0.0", 8551);
    }
    one(stack, own_ip(), 8551);
    one(kernel, "127.0.0.1", 8551);
    one(stack, own_ip(), 8551);

    NOTE("a wildcard on the kernel first");
    if (on_kernel()) {
        kernel = listening(SOCK_STREAM, "127.0.0.1", 8552),
        stack = listening(SOCK_STREAM, own_ip(), 8552);
    } else {
        kernel = listening(SOCK_STREAM | SOCK_KERNEL, "0.0.0.0", 8552),
        stack = listening(SOCK_STREAM, "0.0.0.0", 8552);
    }
    one(stack, own_ip(), 8552);
    one(kernel, "127.0.0.1", 8552);

    NOTE("one epoll set");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = stack};
    int set = epoll_create(1);
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, stack, &event));
    event.data.fd = kernel;
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, kernel, &event));
    int client = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(client, "127.0.0.1", 8552));
    SAY(epoll_wait(set, &event, 1, 1000));
    SAY(event.data.fd == kernel);
    close(accept(kernel, 0, 0));
    close(client);
    client = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(client, own_ip(), 8552));
    SAY(epoll_wait(set, &event, 1, 1000));
    SAY(event.data.fd == stack);

    NOTE("datagrams");
    if (on_kernel()) {
        stack = made(SOCK_DGRAM), kernel = made(SOCK_DGRAM);
    } else {
        stack = made(SOCK_DGRAM), kernel = made(SOCK_DGRAM | SOCK_KERNEL);
    }
    const char *at_stack = on_kernel() ? own_ip() : "0.0.0.0",
               *at_kernel = on_kernel() ? "127.0.0.1" : "0.0.0.0";
    SAY(bind_to(stack, at_stack, 8553));
    SAY(bind_to(kernel, at_kernel, 8553));
    char buf[8];
    client = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at("127.0.0.1", 8553);
    SAY(sendto(client, "k", 1, 0, (void *)&to, sizeof to));
    SAY(recv(kernel, buf, sizeof buf, 0));
    to = at(own_ip(), 8553);
    SAY(sendto(client, "st", 2, 0, (void *)&to, sizeof to));
    SAY(recv(stack, buf, sizeof buf, 0));

    NOTE("still taken for others");
    int other = socket(AF_INET, SOCK_STREAM, 0);
    SAY(bind_to(other, "127.0.0.1", 8552));
}
