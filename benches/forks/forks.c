/* How many children a second a server makes beside its connections. `forks PORT CONNECTIONS
   SECONDS` accepts so many connections, prints of each way to make a child, one at a time, the
   rounds per second and the processor's microseconds per round, parent and child together, and
   answers each connection once more. */

#include <arpa/inet.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 20000

extern char **environ;

static char *const words[] = {"/bin/true", NULL};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double used_by(int whom) {
    struct rusage usage;
    getrusage(whom, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double used(void) {
    return used_by(RUSAGE_SELF) + used_by(RUSAGE_CHILDREN);
}

static pid_t ends_at_once(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child;
}

static pid_t executes(void) {
    pid_t child = fork();
    if (child == 0) {
        execv(words[0], words);
        _exit(1);
    }
    return child;
}

static pid_t spawned(void) {
    pid_t child;
    return posix_spawn(&child, words[0], NULL, NULL, words, environ) == 0 ? child : -1;
}

static void measure(const char *name, pid_t (*make)(void), double seconds) {
    double start = now(), passed = 0, used_before = used();
    long rounds = 0;
    for (; passed < seconds; rounds++, passed = now() - start) {
        int status;
        pid_t child = make();
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            fail(name);
    }
    double each = (used() - used_before) / (double)rounds;
    printf("%s %.0f %.0f\n", name, (double)rounds / passed, each * 1e6);
    fflush(stdout);
}

int main(int count, char **arguments) {
    static int connections[CONNECTIONS_MAX];
    if (count != 4)
        return 2;
    int wanted = atoi(arguments[2]), yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((unsigned short)atoi(arguments[1]))};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (wanted > CONNECTIONS_MAX || bind(listener, (struct sockaddr *)&name, sizeof name) != 0 ||
        listen(listener, 4096) != 0)
        fail("listen");
    for (int at = 0; at < wanted; at++)
        if ((connections[at] = accept(listener, NULL, NULL)) < 0)
            fail("accept");
    double seconds = atof(arguments[3]);
    measure("fork+_exit", ends_at_once, seconds);
    measure("fork+exec", executes, seconds);
    measure("posix_spawn", spawned, seconds);
    for (int at = 0; at < wanted; at++) {
        char byte;
        ssize_t got = recv(connections[at], &byte, 1, 0);
        /* The first one only looked whether the port is open. */
        if (at > 0 && (got != 1 || send(connections[at], &byte, 1, 0) != 1))
            fail("a connection has ended");
    }
    return 0;
}
