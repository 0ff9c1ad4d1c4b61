/* A server that forks for each connection: `brief_children PORT`. The child reads a line, polls for
   more as a program does that lingers, and answers with the page faults of that poll. */

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static long faults(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

static void serve(int sock) {
    char line[1000];
    ssize_t len = read(sock, line, sizeof line);
    if (len <= 0)
        exit(1);
    long before = faults();
    struct pollfd waits = {.fd = sock, .events = POLLIN};
    if (poll(&waits, 1, 0) != 0)
        exit(2);
    long in_poll = faults() - before;
    len = snprintf(line, sizeof line, "faults %ld\n", in_poll);
    exit(write(sock, line, (size_t)len) == len ? 0 : 3);
}

int main(int argc, char **argv) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1]))};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&addr, sizeof addr) != 0 || listen(listener, 16) != 0)
        return 4;
    signal(SIGCHLD, SIG_IGN);
    for (int sock; (sock = accept(listener, NULL, NULL)) >= 0; close(sock))
        if (fork() == 0) {
            close(listener);
            serve(sock);
        }
    return 5;
}
