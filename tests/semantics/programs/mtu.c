/* Datagrams larger than the link: cut or refused, as IP_MTU_DISCOVER says. */
#include "t.h"

static char big[65536], back[65536];

static void try_lengths(int fd, struct sockaddr_in *to) {
    int lengths[] = {508, 1472, 1473, 20000, 65507, 65508};
    for (int i = 0; i < 6; i++) {
        NOTE("%d bytes", lengths[i]);
        SAY(sendto(fd, big, lengths[i], 0, (void *)to, sizeof *to));
    }
}

int main(void) {
    struct sockaddr_in to = at(peer_ip(), 7009);
    for (int mode = 0; mode <= 6; mode++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0), got = -1;
        socklen_t len = sizeof got;
        NOTE("IP_MTU_DISCOVER %d", mode);
        SAY(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &mode, sizeof mode));
        SAY(getsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &got, &len));
        SAY(got);
        if (mode <= 5) try_lengths(fd, &to);
        close(fd);
    }

    NOTE("changed while it is in use");
    int fd = socket(AF_INET, SOCK_DGRAM, 0), mode = IP_PMTUDISC_DO, mtu = 0;
    SAY(sendto(fd, big, 1473, 0, (void *)&to, sizeof to));
    SAY(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &mode, sizeof mode));
    SAY(sendto(fd, big, 1473, 0, (void *)&to, sizeof to));
    mode = IP_PMTUDISC_WANT;
    SAY(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &mode, sizeof mode));
    SAY(sendto(fd, big, 1473, 0, (void *)&to, sizeof to));

    NOTE("IP_MTU");
    socklen_t len = sizeof mtu;
    SAY(getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &len));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &len));
    SAY(mtu);
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    SAY(getsockopt(stream, IPPROTO_IP, IP_MTU, &mtu, &len));
    SAY(connect_to(stream, peer_ip(), 7001));
    SAY(getsockopt(stream, IPPROTO_IP, IP_MTU, &mtu, &len));
    SAY(mtu);

    NOTE("what comes back");
    for (unsigned i = 0; i < sizeof big; i++) big[i] = i * 31 / 8;
    for (int length = 1472; length <= 65507; length += 12807) {
        NOTE("%d bytes", length);
        SAY(send(fd, big, length, 0));
        readable(fd);
        SAY(recv(fd, back, sizeof back, MSG_DONTWAIT));
        SAY(memcmp(big, back, length));
    }
}
