/* Receives datagrams by recvmmsg() and answers them by sendmmsg(), AT_ONCE a time.
 * Usage: mmsg PORT ROUNDS. The peer sends AT_ONCE when it is answered; they are there when the
 * program looks, because it sleeps before. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define AT_ONCE 32
#define LEN 64

static char bytes[AT_ONCE][LEN];
static struct sockaddr_in names[AT_ONCE];
static struct iovec places[AT_ONCE];
static struct mmsghdr messages[AT_ONCE];

static void expect(const char *what, int done) {
    if (done != AT_ONCE) fprintf(stderr, "%s: %d of %d\n", what, done, AT_ONCE), exit(1);
}

int main(int count, char **words) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    struct timespec moment = {0, 50000000};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    inet_pton(AF_INET, getenv("OWN_IP"), &own.sin_addr);
    if (bind(fd, (void *)&own, sizeof own)) return perror("bind"), 1;
    puts("bound"), fflush(stdout);
    for (int i = 0; i < AT_ONCE; i++) {
        places[i] = (struct iovec){bytes[i], LEN};
        messages[i].msg_hdr = (struct msghdr){names + i, sizeof *names, places + i, 1};
    }
    for (int round = atoi(words[2]); round > 0; round--) {
        recv(fd, bytes[0], LEN, MSG_PEEK);
        nanosleep(&moment, 0);
        for (int i = 0; i < AT_ONCE; i++) messages[i].msg_hdr.msg_namelen = sizeof *names;
        expect("recvmmsg", recvmmsg(fd, messages, AT_ONCE, MSG_DONTWAIT, 0));
        expect("sendmmsg", sendmmsg(fd, messages, AT_ONCE, 0));
    }
}
