/* Routes and sysctls of a running stack. Ends with the number of checks that failed. */
#include <arpa/inet.h>
#include <errno.h>
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

int main(int argc, char *argv[])
{
    ff_init(argc - 1, argv + 1);
    routes(argv[1]);
    numbers();
    return failures;
}
