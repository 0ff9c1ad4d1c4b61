/* Threads of a child that receive on a connection of their parent's while another one closes it. */
#include "t.h"

static int fd;
static long results[3];

static void *reader(void *number) {
    char bytes[16];
    results[(long)number] = recv(fd, bytes, sizeof bytes, MSG_WAITALL);
    return 0;
}

int main(void) {
    int l = listener(8670), asked = ask_peer(8670, "hello");
    fd = accept(l, 0, 0);
    pid_t child = fork();
    if (!child) {
        alarm(20);
        pthread_t threads[3];
        char bytes[16];
        NOTE("read %ld", (long)recv(fd, bytes, 6, MSG_WAITALL));
        for (long i = 0; i < 3; i++) pthread_create(threads + i, 0, reader, (void *)i);
        sleep_ms(100);
        shutdown(fd, SHUT_RDWR);
        close(fd);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0), NOTE("thread %ld", results[i] > 0);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    NOTE("child %d", status);
    close(fd), close(l), close(asked);
    return 0;
}
