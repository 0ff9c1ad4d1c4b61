/* IPv6 sockets and IPv4 addresses in them: which way leads where. */
#include "t.h"

static struct sockaddr_in6 six(const char *ip, int port) {
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, ip, &addr.sin6_addr);
    return addr;
}

static struct sockaddr_in6 as_mapped(const char *ip, int port) {
    char text[64];
    snprintf(text, sizeof text, "::ffff:%s", ip);
    return six(text, port);
}

static const char *own6(void) { return getenv("OWN_IP6"); }
static const char *peer6(void) { return getenv("PEER_IP6"); }

/* How one of these sockets is bound before it sends. */
enum { UNBOUND, ANY, OWN6, OWN_MAPPED, ONLY6, CONNECTED6, HOWS };
static const char *hows[] = {"unbound",         "bound to ::", "bound to IPv6",
                             "bound to mapped", "IPv6 only",   "connected to IPv6"};

static int made(int how, int type) {
    int fd = socket(AF_INET6, type, 0), one = 1;
    struct sockaddr_in6 at6;
    switch (how) {
    case ANY: at6 = six("::", 0); break;
    case OWN6: at6 = six(own6(), 0); break;
    case OWN_MAPPED: at6 = as_mapped(own_ip(), 0); break;
    case ONLY6: setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one); return fd;
    case CONNECTED6:
        if (type == SOCK_STREAM) return fd;
        at6 = six(peer6(), 7011);
        connect(fd, (void *)&at6, sizeof at6);
        return fd;
    default: return fd;
    }
    if (bind(fd, (void *)&at6, sizeof at6)) NOTE("bind: %s", name_of(errno));
    return fd;
}

static void send_to(int how, const char *what, struct sockaddr_in6 to) {
    int fd = made(how, SOCK_DGRAM);
    long n = sendto(fd, "x", 1, 0, (void *)&to, sizeof to);
    char byte;
    NOTE("%s, sendto %s: %s", hows[how], what, n < 0 ? name_of(errno) : "sent");
    if (n == 1) {
        readable(fd);
        NOTE("  answer %ld", (long)recv(fd, &byte, 1, MSG_DONTWAIT));
    }
    close(fd);
}

static void connect_it(int how, int type, const char *what, struct sockaddr_in6 to) {
    int fd = made(how, type);
    int r = connect(fd, (void *)&to, sizeof to);
    NOTE("%s, connect %s %s: %s", hows[how], type == SOCK_STREAM ? "stream" : "datagrams", what,
         r < 0 ? name_of(errno) : "0");
    close(fd);
}

/* Until the neighbours know each other. */
static void warm_up(void) {
    int fd = made(UNBOUND, SOCK_DGRAM);
    struct sockaddr_in6 to = six(peer6(), 7011);
    char byte;
    for (int i = 0; i < 5; i++) {
        sendto(fd, "x", 1, 0, (void *)&to, sizeof to);
        readable(fd);
        if (recv(fd, &byte, 1, MSG_DONTWAIT) == 1) break;
    }
    close(fd);
}

int main(void) {
    warm_up();
    int echo = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(echo, own_ip(), 8561));
    for (int how = 0; how < HOWS; how++) {
        send_to(how, "the mapped peer", as_mapped(peer_ip(), 7001));
        send_to(how, "the peer", six(peer6(), 7011));
        for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
            connect_it(how, type, "the mapped peer", as_mapped(peer_ip(), 7001));
            if (type == SOCK_DGRAM) connect_it(how, type, "the peer", six(peer6(), 7011));
        }
    }

    NOTE("the own address");
    char byte;
    int fd = made(CONNECTED6, SOCK_DGRAM);
    struct sockaddr_in6 to = as_mapped(own_ip(), 8561);
    SAY(sendto(fd, "x", 1, 0, (void *)&to, sizeof to));
    SAY(recv(echo, &byte, 1, 0));
    close(fd);
    fd = made(UNBOUND, SOCK_DGRAM);
    SAY(sendto(fd, "x", 1, 0, (void *)&to, sizeof to));
    SAY(recv(echo, &byte, 1, 0));
    struct sockaddr_in plain = at(own_ip(), 8561);
    SAY(sendto(fd, "x", 1, 0, (void *)&plain, sizeof plain));
    SAY(recv(echo, &byte, 1, 0));
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(sendto(fd, "x", 1, 0, (void *)&to, sizeof to));
    SAY(connect(fd, (void *)&to, sizeof to));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect(fd, (void *)&to, sizeof to));
    SAY(bind(fd, (void *)&to, sizeof to));
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    SAY(connect(fd, (void *)&plain, sizeof plain));
    SAY(bind(fd, (void *)&plain, sizeof plain));
}
