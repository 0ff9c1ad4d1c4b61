/* Source filters of groups, set and read back in both forms. */
#include "t.h"
#include <net/if.h>

static const char *ips[] = {"10.91.7.31", "10.91.7.32", "10.91.7.33"};

static void narrow(int fd, const char *group, int room) {
    char place[256];
    struct ip_msfilter *filter = (void *)place;
    memset(place, 0xaa, sizeof place);
    inet_pton(AF_INET, group, &filter->imsf_multiaddr);
    inet_pton(AF_INET, own_ip(), &filter->imsf_interface);
    filter->imsf_numsrc = room;
    socklen_t len = sizeof place;
    if (SAY(getsockopt(fd, IPPROTO_IP, IP_MSFILTER, filter, &len)) < 0) return;
    NOTE("mode %u, %u sources, %u bytes", filter->imsf_fmode, filter->imsf_numsrc, len);
    for (int i = 0; i < room && i < (int)filter->imsf_numsrc; i++)
        NOTE("  %s", inet_ntoa(filter->imsf_slist[i]));
}

static struct group_filter *wide_of(char *place, const char *group, int count) {
    struct group_filter *filter = (void *)place;
    filter->gf_interface = if_nametoindex("ss0");
    memset(&filter->gf_group, 0, sizeof filter->gf_group);
    struct sockaddr_in *to = (void *)&filter->gf_group;
    *to = at(group, 0);
    filter->gf_numsrc = count;
    return filter;
}

static void wide(int fd, const char *group, int room) {
    char place[2048];
    struct group_filter *filter = wide_of(place, group, room);
    socklen_t len = sizeof place;
    if (SAY(getsockopt(fd, IPPROTO_IP, MCAST_MSFILTER, filter, &len)) < 0) return;
    NOTE("mode %u, %u sources, %u bytes", filter->gf_fmode, filter->gf_numsrc, len);
    for (int i = 0; i < room && i < (int)filter->gf_numsrc; i++) {
        struct sockaddr_in *source = (void *)&filter->gf_slist[i];
        NOTE("  %d %s", source->sin_family, inet_ntoa(source->sin_addr));
    }
}

static void set(int fd, const char *group, int mode, int count) {
    char place[2048];
    struct group_filter *filter = wide_of(place, group, count);
    filter->gf_fmode = mode;
    for (int i = 0; i < count && i < 3; i++) {
        struct sockaddr_in source = at(ips[2 - i], 0);
        memset(&filter->gf_slist[i], 0, sizeof filter->gf_slist[i]);
        memcpy(&filter->gf_slist[i], &source, sizeof source);
    }
    SAY(setsockopt(fd, IPPROTO_IP, MCAST_MSFILTER, filter, GROUP_FILTER_SIZE(count)));
}

int main(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(fd, "0.0.0.0", 7160));
    const char *group = "239.7.7.7";
    struct ip_mreq join;
    inet_pton(AF_INET, group, &join.imr_multiaddr);
    inet_pton(AF_INET, own_ip(), &join.imr_interface);
    narrow(fd, group, 4);
    wide(fd, group, 4);
    set(fd, group, MCAST_INCLUDE, 2);
    SAY(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
    narrow(fd, group, 4);
    for (int i = 0; i < 2; i++) {
        struct ip_mreq_source block = {.imr_multiaddr = join.imr_multiaddr,
                                       .imr_interface = join.imr_interface};
        inet_pton(AF_INET, ips[i], &block.imr_sourceaddr);
        SAY(setsockopt(fd, IPPROTO_IP, IP_BLOCK_SOURCE, &block, sizeof block));
    }
    narrow(fd, group, 4);
    narrow(fd, group, 1);
    wide(fd, group, 4);
    wide(fd, group, 0);
    set(fd, group, MCAST_INCLUDE, 3);
    narrow(fd, group, 4);
    wide(fd, group, 2);
    set(fd, group, 7, 1);
    set(fd, "10.1.2.3", MCAST_INCLUDE, 1);
    narrow(fd, "10.1.2.3", 1);
    socklen_t len = 15;
    char small[16] = "";
    SAY(getsockopt(fd, IPPROTO_IP, IP_MSFILTER, small, &len));
    set(fd, group, MCAST_INCLUDE, 0);
    wide(fd, group, 4);
    SAY(close(fd));
}
