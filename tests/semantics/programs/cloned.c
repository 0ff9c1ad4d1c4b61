/* Children with a memory of their own that clone() and clone3() make: they share the sockets of
 * their parent, and make their own. */
#include "t.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

enum kind { LIBC, LIBC_RETURNS, RAW, RAW3 };

static int shared;

static void echoed(const char *who, int fd, const char *text) {
    char bytes[16] = {0};
    if (write(fd, text, strlen(text)) < 0) NOTE("%s: %s", who, name_of(errno));
    long got = read(fd, bytes, sizeof bytes - 1);
    NOTE("%s: %ld %s", who, got, bytes);
}

static int child(void *kind) {
    echoed("the child, its parent's connection", shared, "shared");
    int own = tcp(7001), port = listener(7081);
    echoed("the child, its own connection", own, "own");
    NOTE("the child listens: %d", port >= 0);
    if (*(enum kind *)kind != LIBC_RETURNS) _exit(4);
    return 5;
}

static pid_t cloned(enum kind kind) {
    static char stack[1 << 18] __attribute__((aligned(16)));
    struct clone_args words = {.exit_signal = SIGCHLD};
    if (kind == LIBC || kind == LIBC_RETURNS)
        return clone(child, stack + sizeof stack, SIGCHLD, &kind);
    pid_t pid = kind == RAW ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
                            : syscall(SYS_clone3, &words, sizeof words);
    if (pid == 0) child(&kind);
    return pid;
}

static void *connects(void *unused) {
    for (int i = 0; i < 20; i++) close(tcp(7001));
    return unused;
}

int main(void) {
    const char *names[] = {"clone", "clone, which returns", "SYS_clone", "SYS_clone3"};
    pthread_t thread;
    shared = tcp(7001);
    for (int beside = 0; beside < 2; beside++)
        for (enum kind kind = LIBC; kind <= RAW3; kind++) {
            int status = 0;
            NOTE("%s%s", names[kind], beside ? ", beside a thread" : "");
            if (beside) pthread_create(&thread, NULL, connects, NULL);
            pid_t pid = cloned(kind);
            if (beside) pthread_join(thread, NULL);
            waitpid(pid, &status, 0);
            NOTE("it ends: %d", WEXITSTATUS(status));
            echoed("the parent", shared, "parent");
        }
    close(shared);
    struct clone_args none = {0};
    SAY(syscall(SYS_clone3, NULL, sizeof none));
    SAY(syscall(SYS_clone3, &none, 8));
    return 0;
}
