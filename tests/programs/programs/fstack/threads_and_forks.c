/* A server whose threads share all of its connections, each of which is answered by another thread
 * at each line, by a thread of its own, or by a child. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ff_api.h"

#define WORKERS 4
#define QUEUE 256

struct job {
    int fd;
    char line[256];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t added = PTHREAD_COND_INITIALIZER;
static int queue[QUEUE], first, count, listener;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(2);
}

static void put(int fd)
{
    pthread_mutex_lock(&lock);
    if (count == QUEUE)
        fail("queue");
    queue[(first + count++) % QUEUE] = fd;
    pthread_cond_signal(&added);
    pthread_mutex_unlock(&lock);
}

static int take(void)
{
    int fd;
    pthread_mutex_lock(&lock);
    while (count == 0)
        pthread_cond_wait(&added, &lock);
    fd = queue[first];
    first = (first + 1) % QUEUE;
    count--;
    pthread_mutex_unlock(&lock);
    return fd;
}

static void *answer(void *arg)
{
    struct job *job = (struct job *)arg;
    size_t len = strlen(job->line);
    if (ff_write(job->fd, job->line, len) != (ssize_t)len)
        fail("write");
    return arg;
}

/* 0: the connection has ended. */
static int serve(int fd)
{
    struct job job = {fd, ""};
    size_t len = 0;
    while (len == 0 || job.line[len - 1] != '\n') {
        ssize_t got = ff_read(fd, job.line + len, sizeof job.line - 1 - len);
        if (got < 0)
            fail("read");
        if (got == 0)
            return 0;
        len += (size_t)got;
    }
    if (job.line[0] == 'f') {
        int status;
        pid_t child = fork();
        if (child == 0) {
            answer(&job);
            _exit(7);
        }
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            fail("child");
    } else if (job.line[0] == 't') {
        pthread_t thread;
        void *result;
        if (ff_pthread_create(&thread, NULL, answer, &job) != 0 ||
            ff_pthread_join(thread, &result) != 0 || result != &job)
            fail("thread");
    } else {
        answer(&job);
    }
    return 1;
}

static void *work(void *arg)
{
    for (;;) {
        int fd = take();
        if (serve(fd))
            put(fd);
        else if (ff_close(fd) != 0)
            fail("close");
    }
    return arg;
}

static void *take_connections(void *arg)
{
    for (;;) {
        int fd = ff_accept(listener, NULL, NULL);
        if (fd < 0)
            fail("accept");
        put(fd);
    }
    return arg;
}

static int loop(void *arg)
{
    return arg != NULL;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in any;
    pthread_t thread;
    ff_init(argc, argv);
    memset(&any, 0, sizeof any);
    any.sin_family = AF_INET;
    any.sin_port = htons(9300);
    listener = ff_socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || ff_bind(listener, (struct linux_sockaddr *)&any, sizeof any) < 0 ||
        ff_listen(listener, 64) < 0)
        fail("listen");
    for (int i = 0; i < WORKERS; i++)
        if (ff_pthread_create(&thread, NULL, work, NULL) != 0)
            fail("ff_pthread_create");
    if (ff_pthread_create(&thread, NULL, take_connections, NULL) != 0)
        fail("ff_pthread_create");
    ff_run(loop, NULL);
    return 0;
}
