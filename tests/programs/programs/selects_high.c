/* `selects_high PORT FILES`: opens so many files, accepts a connection, whose number is above
   theirs, waits for it by select with as many bits as descriptors may be, and sends one line
   back. Before that it waits for a pipe behind a number below that has become free. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORD_BITS (8 * (int)sizeof(long))

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((unsigned short)atoi(words[1]))};
    struct rlimit limit;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1, highest = 0;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) != 0 || listen(listener, 10) != 0)
        fail("listen");
    for (int files = atoi(words[2]); files > 0; files--)
        if ((highest = open("/dev/null", O_RDONLY)) < 0)
            fail("open");
    /* A number below may have become free. */
    int low = accept(listener, NULL, NULL), sock = fcntl(low, F_DUPFD, highest + 1);
    if (sock < 0 || close(low) != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        fail("accept");
    int bits = (int)limit.rlim_cur;
    long *set = calloc((size_t)(bits / WORD_BITS + 1), sizeof *set);
    char line[100];
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1)
        fail("pipe");
    close(3967);
    set[ends[0] / WORD_BITS] |= 1L << (ends[0] % WORD_BITS);
    struct timeval soon = {.tv_sec = 5};
    if (select(bits, (fd_set *)set, NULL, NULL, &soon) != 1 ||
        !(set[ends[0] / WORD_BITS] >> (ends[0] % WORD_BITS) & 1))
        fail("select on the pipe");
    set[ends[0] / WORD_BITS] = 0;
    for (;;) {
        set[sock / WORD_BITS] |= 1L << (sock % WORD_BITS);
        if (select(bits, (fd_set *)set, NULL, NULL, NULL) != 1 ||
            !(set[sock / WORD_BITS] >> (sock % WORD_BITS) & 1))
            fail("select");
        ssize_t got = recv(sock, line, sizeof line, 0);
        if (got <= 0)
            return 0;
        send(sock, line, (size_t)got, 0);
    }
}
