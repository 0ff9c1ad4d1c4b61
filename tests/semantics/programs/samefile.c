/* Whether two numbers stand for the same file: kcmp, and the links in /proc/self/fd. */
#include "t.h"
#include <dirent.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>

enum { FILES = 9 };

static long compare(pid_t a, pid_t b, int left, int right) {
    return syscall(SYS_kcmp, a, b, KCMP_FILE, left, right);
}

/* Whether the order of all files is one: what is less stays less, whoever is asked first. */
static int is_an_order(const int *fd, int count) {
    int less[FILES][FILES] = {0};
    pid_t own = getpid();
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            long one = compare(own, own, fd[i], fd[j]), other = compare(own, own, fd[j], fd[i]);
            if (i == j ? one != 0 : one + other != 3 || one < 1 || one > 2) return 0;
            less[i][j] = one == 1;
        }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            for (int k = 0; k < count; k++)
                if (less[i][j] && less[j][k] && !less[i][k]) return 0;
    return 1;
}

/* Which ways through links of the file system give that inode. */
static void leads(int fd, const char *path, ino_t inode) {
    struct stat by[5];
    struct statx wide;
    char place[64], second[64];
    snprintf(place, 64, "/tmp/samefile-%d", getpid());
    snprintf(second, 64, "%s-more", place);
    symlink(path, place), symlink(strrchr(place, '/') + 1, second);
    stat(place, &by[0]), fstatat(AT_FDCWD, second, &by[1], 0), syscall(SYS_stat, path, &by[2]);
    chdir("/tmp"), stat(second + 5, &by[3]), chdir("/");
    statx(AT_FDCWD, second, 0, STATX_INO, &wide);
    int kept = dup(0);
    dup2(fd, 0), stat("/dev/stdin", &by[4]), dup2(kept, 0), close(kept);
    printf("by links");
    for (int i = 0; i < 5; i++) printf(" %d", by[i].st_ino == inode);
    lstat(place, &by[0]);
    NOTE("; %d, itself %d", wide.stx_ino == inode, by[0].st_ino == inode);
    unlink(place), unlink(second);
}

/* Which ways to read the link of a number give "socket:[inode of fstat]". */
static void links(const char *what, int fd) {
    char path[5][64], want[64], got[64] = "", short_one[12] = "", number[16];
    struct stat status, named, there, empty;
    struct statx wide;
    fstat(fd, &status);
    snprintf(want, sizeof want, "socket:[%lu]", (unsigned long)status.st_ino);
    snprintf(number, sizeof number, "%d", fd);
    snprintf(path[0], 64, "/proc/self/fd/%d", fd);
    snprintf(path[1], 64, "/proc/thread-self/fd/%d", fd);
    snprintf(path[2], 64, "/proc/%d/fd/%d", getpid(), fd);
    snprintf(path[3], 64, "/proc/self/task/%d/fd/%d", getpid(), fd);
    snprintf(path[4], 64, "/dev/fd/%d", fd);
    printf("%s: links", what);
    for (int i = 0; i < 5; i++) {
        long len = readlink(path[i], got, sizeof got);
        printf(" %d", len == strlen(want) && !memcmp(got, want, len));
    }
    DIR *folder = opendir("/proc/self/fd");
    long len = readlinkat(dirfd(folder), number, got, sizeof got);
    printf(" %d", len == strlen(want) && !memcmp(got, want, len));
    fstatat(dirfd(folder), number, &there, 0);
    closedir(folder);
    chdir("/proc/self/fd");
    len = readlink(number, got, sizeof got);
    printf(" %d", len == strlen(want) && !memcmp(got, want, len));
    chdir("/");
    len = syscall(SYS_readlinkat, -1, path[0], got, sizeof got);
    printf(" %d", len == strlen(want) && !memcmp(got, want, len));
    printf(" %d", readlink(path[0], short_one, 10) == 10 && !memcmp(short_one, want, 10));
    stat(path[0], &named), fstatat(fd, "", &empty, AT_EMPTY_PATH);
    statx(AT_FDCWD, path[2], 0, STATX_INO, &wide);
    NOTE("; stat %d %d %d %d", named.st_ino == status.st_ino, there.st_ino == status.st_ino,
         empty.st_ino == status.st_ino, wide.stx_ino == status.st_ino);
    leads(fd, path[0], status.st_ino);
}

static void *in_thread(void *fd) {
    char path[64], got[64] = "", want[64];
    struct stat status;
    fstat(*(int *)fd, &status);
    snprintf(want, sizeof want, "socket:[%lu]", (unsigned long)status.st_ino);
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", syscall(SYS_gettid), *(int *)fd);
    if (readlink(path, got, sizeof got - 1) < 0) got[0] = 0;
    NOTE("by a thread's number: %d", !strcmp(got, want));
    long same = compare(syscall(SYS_gettid), getpid(), *(int *)fd, *(int *)fd);
    NOTE("compared by a thread's number: %ld", same);
    return 0;
}

/* KCMP_EPOLL_TFD. */
static void members(int set, int stream, int other, int pipe) {
    struct epoll_event event = {.events = EPOLLIN};
    pid_t own = getpid();
    epoll_ctl(set, EPOLL_CTL_ADD, stream, &event), epoll_ctl(set, EPOLL_CTL_ADD, pipe, &event);
    struct kcmp_epoll_slot slot = {set, stream, 0};
    NOTE("the member: %ld", syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, stream, &slot));
    NOTE("another: %d", syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, other, &slot) > 0);
    NOTE("a pipe: %d", syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, pipe, &slot) > 0);
    slot.toff = 1;
    SAY(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, stream, &slot));
    slot = (struct kcmp_epoll_slot){set, pipe, 0};
    NOTE("the pipe: %ld", syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, pipe, &slot));
    NOTE("not the pipe: %d", syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, stream, &slot) > 0);
    slot.tfd = other;
    SAY(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, other, &slot));
    slot = (struct kcmp_epoll_slot){stream, pipe, 0};
    SAY(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, pipe, &slot));
    SAY(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, pipe, NULL));
    slot = (struct kcmp_epoll_slot){set, stream, 0};
    SAY(syscall(SYS_kcmp, own, own, KCMP_EPOLL_TFD, 999, &slot));
}

int main(void) {
    int server = listener(8381), control = ask_peer(8381, "silent"), pipes[2], pair[2];
    int got = accept(server, 0, 0), stream = tcp(7010), fresh = socket(AF_INET, SOCK_STREAM, 0);
    int wide = socket(AF_INET6, SOCK_STREAM, 0), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    int connected = socket(AF_INET, SOCK_DGRAM, 0), set = epoll_create1(0);
    pipe(pipes), bind_to(datagrams, own_ip(), 8382), connect_to(connected, peer_ip(), 7001);
    int all[FILES] = {server, got, stream, fresh, wide, datagrams, connected, pipes[0], set};
    const char *names[] = {"a listener",   "an accepted one", "a connection",
                           "a fresh one",  "of IPv6",         "datagrams",
                           "connected datagrams"};
    pid_t own = getpid();
    NOTE("an order: %d", is_an_order(all, FILES));
    for (int i = 0; i < FILES; i++) {
        int copy = dup(all[i]);
        NOTE("a copy: %ld", compare(own, own, all[i], copy));
        close(copy);
    }
    SAY(compare(own, own, stream, 999));
    SAY(compare(own, own, 999, stream));
    for (int i = 0; i < 7; i++) links(names[i], all[i]);
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, &stream), pthread_join(thread, 0);
    members(set, stream, got, pipes[0]);

    /* A child has the same files under the same numbers. */
    pid_t child = fork();
    if (!child) pause(), _exit(0);
    for (int i = 0; i < 8; i++) {
        int other = all[(i + 1) % 8];
        NOTE("in a child: %ld, another %d, from there %ld %d", compare(own, child, all[i], all[i]),
             compare(own, child, all[i], other) > 0, compare(child, own, all[i], all[i]),
             compare(child, own, all[i], other) > 0);
    }
    kill(child, SIGKILL), waitpid(child, 0, 0);
    close(control);
}
