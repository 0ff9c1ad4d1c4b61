/* Routes and sysctls of a running stack. Ends with the number of checks that failed. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "ff_api.h"
#include "ff_config.h"

static int failures;

static void check(int is_right, const char *what)
{
    if (!is_right) {
        printf("FAILED: %s (errno %d)\n", what, errno);
        ++failures;
    }
}

static struct sockaddr_in address(const char *text)
{
    struct sockaddr_in made;
    memset(&made, 0, sizeof made);
    made.sin_family = AF_INET;
    inet_pton(AF_INET, text, &made.sin_addr);
    return made;
}

static int route(enum FF_ROUTE_CTL what, const char *to, const char *mask, const char *by)
{
    struct sockaddr_in network = address(to), netmask = address(mask), gateway = address(by);
    return ff_route_ctl(what, FF_RTF_GATEWAY, (struct linux_sockaddr *)&network,
                        (struct linux_sockaddr *)&gateway, (struct linux_sockaddr *)&netmask);
}

static void routes(const char *gateway)
{
    check(route(FF_ROUTE_ADD, "192.0.2.0", "255.255.255.0", gateway) == 0, "a route is added");
    check(route(FF_ROUTE_ADD, "192.0.2.0", "255.255.255.0", gateway) == -1 && errno == EEXIST,
          "it is there");
    check(route(FF_ROUTE_CHANGE, "192.0.2.0", "255.255.255.0", gateway) == 0, "it is changed");
    check(route(FF_ROUTE_DEL, "192.0.2.0", "255.255.255.0", gateway) == 0, "it is removed");
    check(route(FF_ROUTE_DEL, "192.0.2.0", "255.255.255.0", gateway) == -1 && errno == ESRCH,
          "it is gone");
    check(route(FF_ROUTE_ADD, "192.0.2.0", "255.0.255.0", gateway) == -1 && errno == EINVAL,
          "a mask with holes");
    check(route(FF_ROUTE_ADD, "192.0.2.0", "255.255.255.0", "203.0.113.1") == -1,
          "a gateway out of reach");
}

static void numbers(void)
{
    static const char name[] = "net.inet.tcp.delayed_ack";
    int by_name[2] = {0, 3}, mib[24], value = -1, new_value, later = -1;
    size_t len = sizeof mib, value_len = sizeof value;
    check(ff_sysctl(by_name, 2, mib, &len, name, sizeof name - 1) == 0, "a name has numbers");
    u_int count = (u_int)(len / sizeof(int));
    check(ff_sysctl(mib, count, &value, &value_len, NULL, 0) == 0 && value >= 0, "a value is read");
    new_value = !value;
    check(ff_sysctl(mib, count, NULL, NULL, &new_value, sizeof new_value) == 0, "a value is set");
    value_len = sizeof later;
    check(ff_sysctl(mib, count, &later, &value_len, NULL, 0) == 0 && later == new_value,
          "it holds");
    new_value = 12345;
    check(ff_sysctl(mib, count, NULL, NULL, &new_value, 3) == -1 && errno == EINVAL,
          "three bytes are no number");
}

static struct ifreq asked;

static int ask(int fd, unsigned long what, const char *name)
{
    strncpy(asked.ifr_name, name, sizeof asked.ifr_name - 1);
    return ff_ioctl(fd, what, &asked);
}

static int is(const char *text)
{
    struct sockaddr_in wanted = address(text);
    struct sockaddr_in *found = (struct sockaddr_in *)&asked.ifr_addr;
    return found->sin_family == AF_INET && found->sin_addr.s_addr == wanted.sin_addr.s_addr;
}

static void interfaces(const char *own)
{
    struct ifreq all[4];
    struct ifconf list;
    int fd = ff_socket(AF_INET, SOCK_DGRAM, 0);
    list.ifc_len = sizeof all;
    list.ifc_req = all;
    check(ff_ioctl(fd, SIOCGIFCONF, &list) == 0 && list.ifc_len == sizeof *all, "a list");
    asked = all[0];
    check(is(own), "of the stack's address");
    check(ask(fd, SIOCGIFADDR, "f-stack-0") == 0 && is(own), "its address");
    check(ask(fd, SIOCGIFNETMASK, all[0].ifr_name) == 0 && is("255.255.255.0"), "its netmask");
    check(ask(fd, SIOCGIFMTU, all[0].ifr_name) == 0 && asked.ifr_mtu == 1500, "its MTU");
    check(ask(fd, SIOCGIFFLAGS, all[0].ifr_name) == 0 && asked.ifr_flags & IFF_UP, "it is up");
    asked.ifr_flags = 0;
    check(ask(fd, SIOCSIFFLAGS, all[0].ifr_name) == 0, "it is put down");
    check(ask(fd, SIOCGIFFLAGS, all[0].ifr_name) == 0 && !(asked.ifr_flags & IFF_UP), "and down");
    asked.ifr_flags |= IFF_UP;
    check(ask(fd, SIOCSIFFLAGS, all[0].ifr_name) == 0, "it is put up");
    check(ask(fd, SIOCGIFFLAGS, all[0].ifr_name) == 0 && asked.ifr_flags & IFF_UP, "and up");
    asked.ifr_mtu = 1400;
    check(ask(fd, SIOCSIFMTU, all[0].ifr_name) == 0, "its MTU is set");
    check(ask(fd, SIOCGIFMTU, all[0].ifr_name) == 0 && asked.ifr_mtu == 1400, "and holds");
    asked.ifr_mtu = 1501;
    check(ask(fd, SIOCSIFMTU, all[0].ifr_name) == -1 && errno == EINVAL, "more than its port's");
    asked.ifr_mtu = 1500;
    check(ask(fd, SIOCSIFMTU, all[0].ifr_name) == 0, "its port's again");
    check(ask(fd, SIOCGIFADDR, "lo") == -1 && errno == ENODEV, "an interface of the kernel's");
    check(ask(fd, SIOCSIFADDR, all[0].ifr_name) == -1 && errno == EINVAL, "an old request");
    ff_close(fd);
}

int main(int argc, char *argv[])
{
    ff_init(argc - 2, argv + 2);
    interfaces(argv[2]);
    routes(argv[1]);
    numbers();
    return failures;
}
