// Memberships, and options of what is sent to groups: what each call answers.
#include "t.h"

static const char *own;

static const char *err(long answer) {
    return answer < 0 ? name_of(errno) : "0";
}

#define say NOTE

static void join(int fd, const char *what, int name, const char *group) {
    struct ip_mreq req = {.imr_interface.s_addr = inet_addr(own)};
    req.imr_multiaddr.s_addr = inet_addr(group);
    say("%s %s: %s", what, group, err(setsockopt(fd, IPPROTO_IP, name, &req, sizeof req)));
}

static void source(int fd, const char *what, int name, const char *from) {
    struct ip_mreq_source req = {.imr_interface.s_addr = inet_addr(own)};
    req.imr_multiaddr.s_addr = inet_addr("239.9.9.9");
    req.imr_sourceaddr.s_addr = inet_addr(from);
    say("%s %s: %s", what, from, err(setsockopt(fd, IPPROTO_IP, name, &req, sizeof req)));
}

static void set(int fd, const char *what, int name, int value) {
    int got = -1;
    socklen_t len = sizeof got;
    say("%s %d: %s", what, value, err(setsockopt(fd, IPPROTO_IP, name, &value, sizeof value)));
    say("%s: %s %d", what, err(getsockopt(fd, IPPROTO_IP, name, &got, &len)), got);
}

static void hears(int fd, const char *what) {
    char buf[64];
    struct pollfd one = {.fd = fd, .events = POLLIN};
    if (poll(&one, 1, 300) != 1) {
        say("%s: nothing", what);
        return;
    }
    ssize_t len = recv(fd, buf, sizeof buf - 1, 0);
    buf[len < 0 ? 0 : len] = 0;
    say("%s: %s", what, buf);
}

static void to(int fd, const char *where, int port, const char *text) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    addr.sin_addr.s_addr = inet_addr(where);
    say("to %s: %s", where,
        err(sendto(fd, text, strlen(text), 0, (void *)&addr, sizeof addr) < 0 ? -1 : 0));
}

int main(void) {
    own = getenv("OWN_IP");
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7009)};
    join(fd, "leave", IP_DROP_MEMBERSHIP, "239.9.9.9");
    join(fd, "join", IP_ADD_MEMBERSHIP, "10.1.1.1");
    join(fd, "join", IP_ADD_MEMBERSHIP, "239.9.9.9");
    join(fd, "join", IP_ADD_MEMBERSHIP, "239.9.9.9");
    source(fd, "include", IP_ADD_SOURCE_MEMBERSHIP, "10.91.7.1");
    source(fd, "block", IP_BLOCK_SOURCE, "10.91.7.1");
    source(fd, "forgo", IP_DROP_SOURCE_MEMBERSHIP, "10.91.7.1");
    source(fd, "forgo", IP_DROP_SOURCE_MEMBERSHIP, "10.91.7.1");
    source(fd, "block", IP_BLOCK_SOURCE, "10.91.7.1");
    join(fd, "join", IP_ADD_MEMBERSHIP, "239.9.9.9");
    source(fd, "block", IP_BLOCK_SOURCE, "10.91.7.1");
    source(fd, "block", IP_BLOCK_SOURCE, "10.91.7.1");
    source(fd, "include", IP_ADD_SOURCE_MEMBERSHIP, "10.91.7.1");
    source(fd, "unblock", IP_UNBLOCK_SOURCE, "10.91.7.1");
    source(fd, "unblock", IP_UNBLOCK_SOURCE, "10.91.7.1");
    for (int n = 0; n < 21; n++) {
        char group[32];
        snprintf(group, sizeof group, "239.8.8.%d", n);
        if (n > 17)
            join(fd, "join", IP_ADD_MEMBERSHIP, group);
        else {
            struct ip_mreq req = {.imr_interface.s_addr = inet_addr(own)};
            req.imr_multiaddr.s_addr = inet_addr(group);
            setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &req, sizeof req);
        }
    }
    set(fd, "ttl", IP_MULTICAST_TTL, 5);
    set(fd, "ttl", IP_MULTICAST_TTL, 256);
    set(fd, "loop", IP_MULTICAST_LOOP, 0);
    set(fd, "loop", IP_MULTICAST_LOOP, 1);
    set(fd, "all", IP_MULTICAST_ALL, 2);
    struct in_addr via = {.s_addr = inet_addr(own)}, got = {0};
    socklen_t len = sizeof got;
    say("via: %s", err(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &via, sizeof via)));
    say("via: %s %d", err(getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &got, &len)),
        got.s_addr == via.s_addr);
    say("bind: %s", err(bind(fd, (void *)&any, sizeof any)));
    to(fd, "239.9.9.9", 7009, "to all");
    hears(fd, "looped");
    to(fd, "239.9.9.10", 7009, "to others");
    hears(fd, "not a member");
    set(fd, "loop", IP_MULTICAST_LOOP, 0);
    to(fd, "239.9.9.9", 7009, "to others again");
    hears(fd, "not looped");
    to(fd, "10.91.7.255", 7009, "everybody");
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    to(fd, "10.91.7.255", 7009, "everybody");
    hears(fd, "broadcast");
    int second = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_port = htons(7010)};
    group.sin_addr.s_addr = inet_addr("239.9.9.9");
    say("bind to a group: %s", err(bind(second, (void *)&group, sizeof group)));
    say("connect to a broadcast: %s",
        err(connect(second,
                    (void *)&(struct sockaddr_in){.sin_family = AF_INET,
                                                  .sin_port = htons(9),
                                                  .sin_addr.s_addr = inet_addr("10.91.7.255")},
                    sizeof group)));
    set(fd, "loop", IP_MULTICAST_LOOP, 1);
    to(fd, "239.9.9.9", 7010, "to the bound");
    hears(second, "bound to a group");
    close(fd);
    hears(second, "after the last member has left");
    return 0;
}
