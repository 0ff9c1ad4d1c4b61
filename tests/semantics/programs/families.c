/* Addresses of families that are not quite the socket's. */
#include "t.h"

int main(void) {
    char b[8];
    struct sockaddr_in to = at(peer_ip(), 7001), any = {.sin_port = htons(8509)};
    struct timeval t = {0, 300000};
    int u = socket(AF_INET, SOCK_DGRAM, 0), v = socket(AF_INET6, SOCK_DGRAM, 0);
    setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(v, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    NOTE("none on AF_INET");
    to.sin_family = AF_UNSPEC;
    SAY(sendto(u, "abc", 3, 0, (void *)&to, sizeof to));
    SAY(recv(u, b, 8, 0));
    to = at(peer_ip(), 0);
    SAY(sendto(u, "abc", 3, 0, (void *)&to, sizeof to));
    to = at(peer_ip(), 7001);
    SAY(sendto(u, "abc", 3, MSG_OOB, (void *)&to, sizeof to));
    SAY(recv(u, b, 8, MSG_DONTWAIT));
    NOTE("AF_INET on AF_INET6");
    SAY(sendto(v, "abc", 3, 0, (void *)&to, sizeof to));
    SAY(recv(v, b, 8, 0));
    SAY(connect(v, (void *)&to, sizeof to));
    SAY(send(v, "abc", 3, 0));
    SAY(recv(v, b, 8, 0));
    NOTE("bind to none");
    int l = socket(AF_INET, SOCK_STREAM, 0);
    SAY(bind(l, (void *)&any, sizeof any));
    SAY(listen(l, 5));
    struct pollfd p = {l, POLLIN, 0};
    SAY(poll(&p, 1, 0));
    int asked = ask_peer(8509, "hello");
    SAY(poll(&p, 1, 300));
    int w = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind(w, (void *)&any, sizeof any));
    close(asked);
    return 0;
}
