/* One process of a family that shares sockets. `member FOLDER NAME [PROCESS]` makes the calls that
 * lines in FOLDER/NAME.in ask for, and answers each in FOLDER/NAME.out: the result, the error's
 * name, and what was read. A child is a member with a name of its own, and so is another thread of
 * the process. Sockets have fixed numbers. */

#define _GNU_SOURCE

#include "member.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

enum { MESSAGES = 199, THREADS = 24, WORDS = 6 };
/* Of signals: the system calls that one interrupts are restarted, or not. */
enum { RESTARTS = SIGUSR1, INTERRUPTS = SIGUSR2 };

struct thread {
    char name[32];
    pthread_t id;
};

static char *folder, self[256], process[32];
static struct thread threads[THREADS];
static __thread struct thread *mine;

static int requests(void) { return REQUESTS + 2 * (int)(mine - threads); }

static void put(int fd, int number) {
    if (fd < 0 || dup2(fd, number) < 0) perror("member"), exit(1);
    close(fd);
    fcntl(number, F_SETFD, FD_CLOEXEC);
}

static socklen_t address_of(const char *member, struct sockaddr_un *addr) {
    addr->sun_family = AF_UNIX;
    int len = snprintf(addr->sun_path + 1, sizeof addr->sun_path - 1, "%s.%s",
                       strrchr(folder, '/') + 1, member);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* Takes the ends of the thread's lines. */
static void begin(void) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.in", folder, mine->name);
    put(open(path, O_RDWR), requests());
    snprintf(path, sizeof path, "%s/%s.out", folder, mine->name);
    put(open(path, O_RDWR), requests() + 1);
}

/* Makes the calling thread, the only one, that of another process. */
static void begin_process(const char *name, const char *as) {
    struct sockaddr_un addr = {0};
    for (int fd = MESSAGES; fd < REQUESTS + 2 * THREADS; fd++) close(fd);
    memset(threads, 0, sizeof threads);
    mine = threads, mine->id = pthread_self();
    snprintf(mine->name, sizeof mine->name, "%s", name);
    snprintf(process, sizeof process, "%s", as);
    begin();
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    bind(fd, (void *)&addr, address_of(process, &addr));
    put(fd, MESSAGES);
}

static void answer(long result) {
    char line[ROOM + 2 * TOLD];
    const char *error = result < 0 ? strerrorname_np(errno) : "-";
    int len = snprintf(line, sizeof line, "%ld %s %s\n", result, error, text);
    if (write(requests() + 1, line, (size_t)len) != len) exit(1);
}

static int spawns(const char *child) {
    char *words[] = {self, folder, (char *)child, NULL};
    pid_t pid;
    errno = posix_spawn(&pid, self, NULL, NULL, words, environ);
    return errno ? -1 : 0;
}

static int forks(const char *child) {
    pid_t pid = fork();
    if (pid == 0) begin_process(child, child);
    return pid < 0 ? -1 : pid > 0;
}

/* Sends a descriptor to another member, or receives one (`member` is NULL). */
static long passes(int fd, const char *member) {
    struct sockaddr_un addr = {0};
    char byte = 'x', room[CMSG_SPACE(sizeof fd)];
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = sizeof room};
    if (!member) {
        long count = recvmsg(MESSAGES, &message, MSG_DONTWAIT);
        int got;
        if (count <= 0 || !CMSG_FIRSTHDR(&message)) return -1;
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        return placed(got, fd);
    }
    message.msg_name = &addr, message.msg_namelen = address_of(member, &addr);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(MESSAGES, &message, 0);
}

static void *work(void *thread);

static struct thread *named(const char *name) {
    for (int at = 0; at < THREADS; at++)
        if (!strcmp(threads[at].name, name)) return &threads[at];
    errno = ESRCH;
    return NULL;
}

/* A thread's place is not used again: the runner may still read what it said. */
static int starts(const char *name) {
    struct thread *new = named("");
    if (!new) return -1;
    snprintf(new->name, sizeof new->name, "%s", name);
    errno = pthread_create(&new->id, NULL, work, new);
    return errno ? -1 : 0;
}

static int signals(const char *name, int number) {
    struct thread *thread = named(name);
    if (!thread) return -1;
    errno = pthread_kill(thread->id, number);
    return errno ? -1 : 0;
}

static int cancels(const char *name) {
    struct thread *thread = named(name);
    if (!thread) return -1;
    errno = pthread_cancel(thread->id);
    return errno ? -1 : 0;
}

/* A call on sockets, in which the thread may be cancelled. */
static long calls(char **words) {
    int fd = words[1] ? atoi(words[1]) : -1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    long result = called(words[0], fd, words + 2);
    if (result < 0 && errno == ENOSYS) errno = 0, result = waits(words[0], fd, words + 2);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return result;
}

/* Does what a line asks for. */
static void obey(char *line) {
    char *words[WORDS] = {NULL}, *rest = line;
    for (int at = 0; at < WORDS && (words[at] = strsep(&rest, " ")); at++) {}
    text[0] = 0, errno = 0;
#define IS(word) (!strcmp(words[0], word))
    if (IS("exit")) exit(0);
    if (IS("exec")) {
        char *arguments[] = {self, folder, mine->name, process, NULL};
        answer(0);
        execv(self, arguments);
        exit(1);
    }
    if (IS("fork")) {
        int result = forks(words[1]);
        /* The child waits for lines of its own. */
        if (result) answer(result < 0 ? -1 : 0);
        return;
    }
    if (IS("leave")) answer(0), pthread_exit(NULL);
    if (IS("spawn")) return answer(spawns(words[1]));
    if (IS("thread")) return answer(starts(words[1]));
    if (IS("restarting")) return answer(signals(words[1], RESTARTS));
    if (IS("interrupting")) return answer(signals(words[1], INTERRUPTS));
    if (IS("cancel")) return answer(cancels(words[1]));
    if (IS("send")) return answer(passes(atoi(words[1]), words[2]));
    if (IS("receive")) return answer(passes(atoi(words[1]), NULL));
    answer(calls(words));
}

static void says_cancelled(void *is_cancelled) {
    if (*(int *)is_cancelled && write(requests() + 1, "cancelled\n", 10) != 10) exit(1);
}

/* Until the thread or the process ends. */
static void obey_all(void) {
    char line[ROOM], byte;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    for (size_t len = 0;;) {
        long count = read(requests(), &byte, 1);
        if (count < 0 && errno == EINTR) continue;
        if (count != 1) exit(1);
        line[len] = byte == '\n' ? 0 : byte;
        if (byte != '\n' && ++len == sizeof line) exit(1);
        if (byte != '\n') continue;
        int may_cancel = strcmp(line, "leave") != 0;
        pthread_cleanup_push(says_cancelled, &may_cancel);
        obey(line);
        pthread_cleanup_pop(0);
        len = 0;
    }
}

static void *work(void *thread) {
    mine = thread;
    begin();
    obey_all();
    return NULL;
}

static void handle(int number) { (void)number; }

int main(int count, char **arguments) {
    struct sigaction restarts = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct sigaction interrupts = {.sa_handler = handle};
    if (count < 3) return fprintf(stderr, "member FOLDER NAME [PROCESS]\n"), 2;
    folder = arguments[1];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    signal(SIGPIPE, SIG_IGN);
    sigaction(RESTARTS, &restarts, NULL);
    sigaction(INTERRUPTS, &interrupts, NULL);
    /* Ended by the runner, or with it. */
    begin_process(arguments[2], arguments[count - 1]);
    obey_all();
}
