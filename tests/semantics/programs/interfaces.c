/* Lists of interfaces: getifaddrs, ioctl, netlink. */
#include "t.h"
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>

#define WIRE "ss0"

static const char *text_of(int family, const void *bytes) {
    static char text[4][INET6_ADDRSTRLEN];
    static int turn;
    return inet_ntop(family, bytes, text[turn = (turn + 1) % 4], sizeof text[0]);
}

static const char *address(const struct sockaddr *addr) {
    if (!addr) return "none";
    if (addr->sa_family == AF_INET)
        return text_of(AF_INET, &((struct sockaddr_in *)addr)->sin_addr);
    if (addr->sa_family == AF_INET6)
        return text_of(AF_INET6, &((struct sockaddr_in6 *)addr)->sin6_addr);
    return "other";
}

/* The kernel gives each interface one of its own. */
static int is_link_local(int family, const void *bytes) {
    return family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((struct in6_addr *)bytes);
}

static void by_getifaddrs(void) {
    struct ifaddrs *all, *it;
    SAY(getifaddrs(&all));
    int links = 0, loopback = 0;
    for (it = all; it; it = it->ifa_next) {
        if (!it->ifa_addr) continue;
        int family = it->ifa_addr->sa_family;
        if (!strcmp(it->ifa_name, "lo")) loopback += family == AF_INET;
        if (strcmp(it->ifa_name, WIRE)) continue;
        links += family == AF_PACKET;
        if (family != AF_INET && family != AF_INET6) continue;
        if (is_link_local(family, &((struct sockaddr_in6 *)it->ifa_addr)->sin6_addr)) continue;
        NOTE("%s: family %d, %s, mask %s, broadcast %s, up %d, data %d", it->ifa_name, family,
             address(it->ifa_addr), address(it->ifa_netmask), address(it->ifa_broadaddr),
             (it->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING),
             it->ifa_data && family == AF_PACKET);
    }
    NOTE("links %d, loopback %d", links, loopback);
    freeifaddrs(all);
}

static void request(int fd, unsigned long what, const char *name, const char *about) {
    struct ifreq it = {0};
    strcpy(it.ifr_name, WIRE);
    if (about) {
        struct sockaddr_in addr = at(about, 0);
        memcpy(&it.ifr_addr, &addr, sizeof addr);
    }
    if (ioctl(fd, what, &it)) NOTE("%s: %s", name, name_of(errno));
    else NOTE("%s: %s", name, address(&it.ifr_addr));
}
#define REQUEST(what, about) request(fd, what, #what, about)

static void by_ioctl(int kind) {
    int fd = socket(AF_INET, kind, 0);
    REQUEST(SIOCGIFADDR, NULL);
    REQUEST(SIOCGIFNETMASK, NULL);
    REQUEST(SIOCGIFBRDADDR, NULL);
    REQUEST(SIOCGIFDSTADDR, own_ip());
    REQUEST(SIOCGIFNETMASK, own_ip());
    struct ifreq it = {0};
    strcpy(it.ifr_name, WIRE);
    SAY(ioctl(fd, SIOCGIFFLAGS, &it));
    NOTE("up %d", !!(it.ifr_flags & IFF_UP));
    SAY(ioctl(fd, SIOCGIFINDEX, &it));
    NOTE("index as by name %d", it.ifr_ifindex == (int)if_nametoindex(WIRE));
    strcpy(it.ifr_name, "nonesuch");
    SAY(ioctl(fd, SIOCGIFADDR, &it));

    struct ifreq all[8];
    struct ifconf list = {.ifc_len = 0, .ifc_req = NULL};
    SAY(ioctl(fd, SIOCGIFCONF, &list));
    NOTE("needs %d", list.ifc_len / (int)sizeof(struct ifreq));
    for (int room = 2; room; room--) {
        list = (struct ifconf){.ifc_len = room * sizeof all[0] + 7, .ifc_req = all};
        SAY(ioctl(fd, SIOCGIFCONF, &list));
        int count = list.ifc_len / sizeof all[0];
        for (int n = 0; n < count; n++) NOTE("%s: %s", all[n].ifr_name, address(&all[n].ifr_addr));
    }
    SAY(ioctl(fd, SIOCGIFCONF, NULL));
    close(fd);
}

static int ask(int fd, int family, int index, int sequence) {
    struct {
        struct nlmsghdr head;
        struct ifaddrmsg body;
    } it = {{sizeof it, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, sequence, 0},
            {.ifa_family = family, .ifa_index = index}};
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    return sendto(fd, &it, sizeof it, 0, (void *)&kernel, sizeof kernel);
}

/* One message as the list tells it. */
static void tell(struct nlmsghdr *head, int port) {
    struct ifaddrmsg *it = NLMSG_DATA(head);
    char name[IF_NAMESIZE] = "?";
    if_indextoname(it->ifa_index, name);
    if (strcmp(name, WIRE)) return;
    printf("%s: family %d, /%d, scope %d, permanent %d", name, it->ifa_family, it->ifa_prefixlen,
           it->ifa_scope, !!(it->ifa_flags & IFA_F_PERMANENT));
    int len = IFA_PAYLOAD(head);
    for (struct rtattr *a = IFA_RTA(it); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
        if (a->rta_type == IFA_ADDRESS)
            printf(", address %s", text_of(it->ifa_family, RTA_DATA(a)));
        if (a->rta_type == IFA_LOCAL) printf(", local %s", text_of(it->ifa_family, RTA_DATA(a)));
        if (a->rta_type == IFA_BROADCAST)
            printf(", broadcast %s", text_of(it->ifa_family, RTA_DATA(a)));
        if (a->rta_type == IFA_LABEL) printf(", label %s", (char *)RTA_DATA(a));
        if (a->rta_type == IFA_CACHEINFO)
            printf(", for ever %d", ((struct ifa_cacheinfo *)RTA_DATA(a))->ifa_valid == 0xffffffff);
    }
    NOTE(", multi %d, to us %d", !!(head->nlmsg_flags & NLM_F_MULTI), (int)head->nlmsg_pid == port);
}

/* Reads a list to its end; each datagram is first looked at, as dnsmasq and ip do. */
static void read_list(int fd, int sequence, int port) {
    for (int is_done = 0; !is_done;) {
        char bytes[16384];
        struct sockaddr_nl from;
        struct iovec place = {bytes, 0};
        struct msghdr message = {
            .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &place, .msg_iovlen = 1};
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 1000) != 1) NOTE("not readable"), exit(1);
        int whole = recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC);
        int was_cut = !!(message.msg_flags & MSG_TRUNC);
        place.iov_len = sizeof bytes;
        message.msg_namelen = sizeof from;
        int len = recvmsg(fd, &message, 0);
        if (len < 0) NOTE("recvmsg: %s", name_of(errno)), exit(1);
        if (len != whole || !was_cut || message.msg_flags)
            NOTE("cut %d, %d of %d, flags %x", was_cut, len, whole, message.msg_flags);
        if (from.nl_family != AF_NETLINK || from.nl_pid || message.msg_namelen != sizeof from)
            NOTE("not from the kernel");
        for (struct nlmsghdr *head = (void *)bytes; NLMSG_OK(head, len);
             head = NLMSG_NEXT(head, len)) {
            if ((int)head->nlmsg_seq != sequence) NOTE("sequence %d", head->nlmsg_seq);
            if (head->nlmsg_type == NLMSG_DONE) is_done = 1;
            else if (head->nlmsg_type != RTM_NEWADDR) NOTE("type %d", head->nlmsg_type);
            else if (!is_link_local(((struct ifaddrmsg *)NLMSG_DATA(head))->ifa_family,
                                    RTA_DATA(IFA_RTA(NLMSG_DATA(head)))))
                tell(head, port);
        }
    }
}

static void by_netlink(void) {
    int fd = OPEN(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct sockaddr_nl own = {.nl_family = AF_NETLINK};
    socklen_t len = sizeof own;
    SAY(bind(fd, (void *)&own, sizeof own));
    SAY(getsockname(fd, (void *)&own, &len));
    int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    for (int n = 0; n < 3; n++) {
        SAY(ask(fd, families[n], 0, 70 + n));
        read_list(fd, 70 + n, own.nl_pid);
    }
    /* What is not wanted any more does not come later. */
    int other = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    SAY(ask(other, AF_INET, if_nametoindex("lo"), 80) > 0);
    char place[8192];
    while (recv(fd, place, sizeof place, MSG_DONTWAIT) > 0) {}
    SAY(recv(fd, place, sizeof place, MSG_DONTWAIT));
    close(fd);
    /* A child of a dup asks as well. */
    SAY(ask(other, AF_INET6, 0, 90));
    pid_t child = fork();
    if (!child) read_list(other, 90, own.nl_pid), _exit(0);
    int status;
    waitpid(child, &status, 0);
    NOTE("child %d", status);
    /* One link by its number: an answer that is no list. */
    struct {
        struct nlmsghdr head;
        struct ifinfomsg body;
    } it = {{sizeof it, RTM_GETLINK, NLM_F_REQUEST, 91, 0}, {.ifi_index = if_nametoindex(WIRE)}};
    SAY(send(other, &it, sizeof it, 0));
    SAY(recv(other, place, sizeof place, 0) > 0);
    NOTE("type %d", ((struct nlmsghdr *)place)->nlmsg_type == RTM_NEWLINK);
    SAY(close(other));
}

/* AI_ADDRCONFIG leaves the families that some interface has. */
static void look_up(const char *what, const char *node, const struct addrinfo *hints) {
    struct addrinfo *found = NULL;
    int result = getaddrinfo(node, "80", hints, &found);
    printf("%s of %s: %d", what, node ? node : "none", result);
    for (struct addrinfo *it = found; it; it = it->ai_next) printf(", %s", address(it->ai_addr));
    NOTE(".");
    if (found) freeaddrinfo(found);
}

static void by_name(void) {
    struct addrinfo hints = {.ai_flags = AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM};
    hints.ai_family = AF_INET;
    look_up("IPv4", own_ip(), &hints);
    look_up("IPv4", "127.0.0.1", &hints);
    hints.ai_family = AF_INET6;
    look_up("IPv6", "::1", &hints);
    hints.ai_flags |= AI_V4MAPPED;
    look_up("mapped", own_ip(), &hints);
    hints.ai_family = AF_UNSPEC;
    hints.ai_flags = AI_ADDRCONFIG | AI_PASSIVE;
    look_up("any", NULL, &hints);
    hints.ai_family = 99;
    look_up("none", own_ip(), &hints);
    hints.ai_family = AF_UNSPEC;
    look_up("either", own_ip(), &hints);
}

int main(void) {
    by_name();
    by_getifaddrs();
    by_ioctl(SOCK_DGRAM);
    by_ioctl(SOCK_STREAM);
    by_netlink();
    /* With a socket of the stack's the lists are the same. */
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(fd, own_ip(), 8123));
    by_getifaddrs();
    close(fd);
}
