/* Ends that come on little stack: a signal on an alternate stack with 3 KiB beside its frame, exit
 * on a thread of 16 KiB. */
#include "t.h"
#include <sys/auxv.h>
#include <sys/mman.h>

/* Memory with nothing below it. */
static void *fenced(size_t len) {
    size_t whole = (len + 4095) / 4096 * 4096;
    char *at = mmap(0, whole + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + 65536, whole, PROT_READ | PROT_WRITE);
    return at + 65536;
}

static void use_the_network(void) {
    char b[3];
    int fd = tcp(7001);
    SAY(send(fd, "abc", 3, 0));
    SAY(recv(fd, b, 3, MSG_WAITALL));
}

static void by_signal(void) {
    size_t len = getauxval(AT_MINSIGSTKSZ) + 3072;
    stack_t small = {.ss_sp = fenced(len), .ss_size = len};
    static char much[4 << 20];
    use_the_network();
    int fd = tcp(7006);
    nonblocking(fd);
    write(fd, much, sizeof much);
    SAY(sigaltstack(&small, 0));
    raise(SIGTERM);
    NOTE("still here");
}

static void *exits(void *unused) {
    usleep(50000);
    exit(7);
    return unused;
}

static void by_exit(void) {
    pthread_attr_t attr;
    pthread_t thread;
    use_the_network();
    pthread_attr_init(&attr);
    SAY(pthread_attr_setstack(&attr, fenced(16384), 16384));
    SAY(pthread_create(&thread, &attr, exits, 0));
    pause();
}

static void in_child(const char *what, void (*ends)(void)) {
    int status = 0;
    pid_t pid = fork();
    if (!pid) ends(), exit(0);
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) NOTE("%s: ended by signal %d", what, WTERMSIG(status));
    else NOTE("%s: exit %d", what, WEXITSTATUS(status));
}

int main(void) {
    in_child("a signal", by_signal);
    in_child("exit", by_exit);
}
