/* Reads a connection on standard input to its end or its error, which it names. With `polls` it
 * says what poll and SO_ERROR report once there is an error. Linked statically it runs without the
 * library. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void reads(void) {
    char buffer[100];
    for (;;) {
        ssize_t count = read(0, buffer, sizeof buffer);
        if (count > 0) printf("%.*s\n", (int)count, buffer);
        else if (count == 0) printf("end\n");
        else printf("%s\n", strerror(errno));
        fflush(stdout);
        if (count == 0) return;
    }
}

static void polls(void) {
    struct pollfd one = {0, POLLRDHUP, 0};
    int error = 0;
    socklen_t len = sizeof error;
    poll(&one, 1, -1);
    getsockopt(0, SOL_SOCKET, SO_ERROR, &error, &len);
    printf("%s%s%s%s\n", one.revents & POLLERR ? "ERR " : "", one.revents & POLLHUP ? "HUP " : "",
           one.revents & POLLRDHUP ? "RDHUP " : "", strerror(error));
    fflush(stdout);
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "polls") == 0) polls();
    reads();
    return 0;
}
