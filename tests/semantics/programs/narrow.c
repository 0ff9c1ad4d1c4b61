/* A program that limits its address space before its first socket. */
#include "t.h"
#include <sys/mman.h>
#include <sys/resource.h>

enum { LIMIT = 400 << 20, MUCH = 4 << 20 };

static void *anywhere(size_t len) {
    return mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *writer(void *fd) {
    char *bytes = malloc(MUCH);
    memset(bytes, 'x', MUCH);
    long sent = 0;
    while (sent < MUCH) {
        ssize_t n = write((intptr_t)fd, bytes + sent, MUCH - sent);
        if (n <= 0) break;
        sent += n;
    }
    free(bytes);
    return (void *)sent;
}

static void echo_much(void) {
    int fd = tcp(7001);
    pthread_t thread;
    void *sent;
    char *bytes = malloc(MUCH);
    SAY(pthread_create(&thread, 0, writer, (void *)(intptr_t)fd));
    SAY(read_all(fd, bytes, MUCH));
    pthread_join(thread, &sent);
    NOTE("%ld", (long)sent);
    free(bytes);
    close(fd);
}

static void serve(int port) {
    int own = listener(port), asked = ask_peer(port, "hello");
    readable(own);
    int fd = OPEN(accept(own, 0, 0));
    close(fd);
    close(own);
    close(asked);
}

static void say_limit(void) {
    struct rlimit now;
    SAY(getrlimit(RLIMIT_AS, &now));
    NOTE("%ld %ld", (long)now.rlim_cur, (long)now.rlim_max);
}

int main(void) {
    struct rlimit limit = {LIMIT, LIMIT};
    SAY(setrlimit(RLIMIT_AS, &limit));
    echo_much();
    serve(8520);
    say_limit();
    NOTE("%s", anywhere(LIMIT) == MAP_FAILED ? name_of(errno) : "more than the limit");
    NOTE("%s", anywhere(LIMIT / 4) == MAP_FAILED ? name_of(errno) : "a quarter of it");
    if (fork() == 0) {
        echo_much();
        serve(8521);
        say_limit();
        return 0;
    }
    wait(0);
    return 0;
}
