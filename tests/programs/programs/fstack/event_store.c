/* A store of keys that calls the stack as redis's port to F-Stack does: libc's functions are the
 * program's own and ask ff_fdisused whose a descriptor is, an event loop with timers waits in
 * one kqueue for sockets and pipes of the kernel, a fork saves while the parent serves, another
 * thread closes descriptors. The first arguments are ff_init's.
 *
 *     event_store --conf FILE --proc-type primary --proc-id 0 … FOLDER
 *
 * Port 6379: SET K V, GET K, SAVE, FROM HOST (all keys of a store like this one at port 6380 of
 * HOST), TICKS, QUIT. */
#include <arpa/inet.h>
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ff_api.h"
#include "ff_config.h"
#include "asked_calls.h"

#define FD_MAX 1024
#define KEYS_MAX 64
#define PERIOD_US 10000
enum { READABLE = 1, WRITABLE = 2 };

struct file {
    int mask;
    void (*on_read)(int fd);
    void (*on_write)(int fd);
    char in[4096], out[65536];
    size_t in_len, out_len, sent;
};

static struct file files[FD_MAX];
static struct kevent events[FD_MAX];
static char keys[KEYS_MAX][32], values[KEYS_MAX][256], *folder;
static int kq, listener, saves, asker = -1, to_close[FD_MAX];
static size_t closes, closed;
static long ticks, next_tick_us;
static pid_t saver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void create_event(int fd, int mask, void (*handler)(int))
{
    struct kevent ke;
    if (fd >= FD_MAX)
        fail("number");
    for (int bit = READABLE; bit <= WRITABLE; bit++)
        if (mask & bit) {
            EV_SET(&ke, fd, bit == READABLE ? EVFILT_READ : EVFILT_WRITE, EV_ADD, 0, 0, NULL);
            if (ff_kevent(kq, &ke, 1, NULL, 0, NULL) == -1)
                fail("ff_kevent");
        }
    files[fd].mask |= mask;
    if (mask & READABLE)
        files[fd].on_read = handler;
    if (mask & WRITABLE)
        files[fd].on_write = handler;
}

static void delete_event(int fd, int mask)
{
    struct kevent ke;
    for (int bit = READABLE; bit <= WRITABLE; bit++)
        if (files[fd].mask & mask & bit) {
            EV_SET(&ke, fd, bit == READABLE ? EVFILT_READ : EVFILT_WRITE, EV_DELETE, 0, 0, NULL);
            ff_kevent(kq, &ke, 1, NULL, 0, NULL);
        }
    files[fd].mask &= ~mask;
}

/* As redis's bio threads do. */
static void *closer(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (closed == closes)
            pthread_cond_wait(&more, &lock);
        int fd = to_close[closed++ % FD_MAX];
        pthread_mutex_unlock(&lock);
        if (close(fd) == -1)
            fail("close");
    }
    return NULL;
}

static void end(int fd)
{
    delete_event(fd, READABLE | WRITABLE);
    files[fd].in_len = files[fd].out_len = files[fd].sent = 0;
    shutdown(fd, SHUT_RDWR);
    if (close(fd) == -1)
        fail("close");
}

static void later(int fd)
{
    delete_event(fd, READABLE | WRITABLE);
    pthread_mutex_lock(&lock);
    to_close[closes++ % FD_MAX] = fd;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
}

static void on_writable(int fd)
{
    struct file *file = &files[fd];
    ssize_t sent = write(fd, file->out + file->sent, file->out_len - file->sent);
    if (sent == -1 && errno != EAGAIN) {
        end(fd);
        return;
    }
    file->sent += sent > 0 ? (size_t)sent : 0;
    if (file->sent < file->out_len) {
        if (!(file->mask & WRITABLE))
            create_event(fd, WRITABLE, on_writable);
        return;
    }
    file->sent = file->out_len = 0;
    delete_event(fd, WRITABLE);
}

static void reply(int fd, const char *text)
{
    struct file *file = &files[fd];
    file->out_len += (size_t)snprintf(file->out + file->out_len, sizeof file->out - file->out_len,
                                      "%s\r\n", text);
}

static int key_at(const char *name)
{
    int at = 0;
    while (at < KEYS_MAX - 1 && keys[at][0] && strcmp(keys[at], name) != 0)
        at++;
    return at;
}

static void set(const char *name, const char *value)
{
    int at = key_at(name);
    snprintf(keys[at], sizeof keys[at], "%s", name);
    snprintf(values[at], sizeof values[at], "%s", value);
}

static void on_saved(int fd)
{
    char byte;
    int status;
    ssize_t got = read(fd, &byte, 1);
    if (got == -1 && errno == EAGAIN)
        return;
    if (got == 1)
        return;
    later(fd);
    if (waitpid(saver, &status, 0) != saver || status != 0)
        fail("the child");
    saver = 0;
    saves++;
}

static void save(void)
{
    int ends[2], file;
    char path[4096];
    if (pipe(ends) == -1 || fcntl(ends[0], F_SETFL, O_NONBLOCK) == -1)
        fail("pipe");
    saver = fork();
    if (saver == 0) {
        /* What redis's child does first: the parent's listener has to stay. */
        close(listener);
        usleep(200000);
        snprintf(path, sizeof path, "%s/dump", folder);
        if ((file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600)) == -1)
            _exit(1);
        for (int at = 0; at < KEYS_MAX && keys[at][0]; at++)
            if (write(file, keys[at], strlen(keys[at])) < 1 || write(file, "\n", 1) != 1)
                _exit(2);
        close(file);
        if (write(ends[1], "x", 1) != 1)
            _exit(3);
        _exit(0);
    }
    close(ends[1]);
    create_event(ends[0], READABLE, on_saved);
}

static void on_copied(int fd);
static void on_connected(int fd);

static struct sockaddr_in of_port(unsigned short port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    return address;
}

static void copy_from(int fd, const char *host)
{
    struct sockaddr_in to = of_port(6380);
    int other = socket(AF_INET, SOCK_STREAM, 0);
    if (other == -1 || fcntl(other, F_SETFL, fcntl(other, F_GETFL, 0) | O_NONBLOCK) == -1)
        fail("socket");
    inet_pton(AF_INET, host, &to.sin_addr);
    if (connect(other, (struct sockaddr *)&to, sizeof to) == -1 && errno != EINPROGRESS)
        fail("connect");
    asker = fd;
    create_event(other, READABLE | WRITABLE, on_connected);
}

static void on_connected(int fd)
{
    delete_event(fd, READABLE | WRITABLE);
    if (write(fd, "KEYS\r\n", 6) != 6)
        fail("write");
    create_event(fd, READABLE, on_copied);
}

static void command(int fd, char *line)
{
    char *rest = line, *word = strsep(&rest, " "), *name = rest ? strsep(&rest, " ") : NULL,
         text[64];
    if (strcmp(word, "SET") == 0 && name && rest) {
        set(name, rest);
        reply(fd, "OK");
    } else if (strcmp(word, "GET") == 0 && name)
        reply(fd, values[key_at(name)]);
    else if (strcmp(word, "SAVE") == 0) {
        save();
        reply(fd, "OK");
    } else if (strcmp(word, "SAVES") == 0 || strcmp(word, "TICKS") == 0) {
        snprintf(text, sizeof text, "%ld", word[1] == 'A' ? (long)saves : ticks);
        reply(fd, text);
    } else if (strcmp(word, "FROM") == 0 && name)
        copy_from(fd, name);
    else if (strcmp(word, "QUIT") == 0)
        ff_stop_run();
    else
        reply(fd, "ERR");
}

static int read_lines(int fd, void (*each)(int, char *))
{
    struct file *file = &files[fd];
    char *end_of_line;
    ssize_t got = read(fd, file->in + file->in_len, sizeof file->in - 1 - file->in_len);
    if (got == -1 && errno == EAGAIN)
        return 1;
    if (got <= 0)
        return 0;
    file->in_len += (size_t)got;
    file->in[file->in_len] = 0;
    while ((end_of_line = strstr(file->in, "\r\n"))) {
        *end_of_line = 0;
        each(fd, file->in);
        file->in_len -= (size_t)(end_of_line + 2 - file->in);
        memmove(file->in, end_of_line + 2, file->in_len + 1);
    }
    return 1;
}

static void copied(int fd, char *line)
{
    char *value = line, *name = strsep(&value, " ");
    (void)fd;
    if (value)
        set(name, value);
}

static void on_copied(int fd)
{
    if (read_lines(fd, copied))
        return;
    files[fd].in_len = 0;
    later(fd);
    reply(asker, "OK");
    on_writable(asker);
}

static void on_readable(int fd)
{
    if (!read_lines(fd, command)) {
        end(fd);
        return;
    }
    if (files[fd].out_len > 0)
        on_writable(fd);
}

static void on_arrival(int fd)
{
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    int on = 1, idle = 300, most = 1000;
    while (most--) {
        int client = accept(fd, (struct sockaddr *)&peer, &len);
        if (client == -1) {
            if (errno != EWOULDBLOCK)
                fail("accept");
            return;
        }
        assert(len == sizeof peer && peer.sin_family == AF_INET);
        if (fcntl(client, F_SETFL, fcntl(client, F_GETFL, 0) | O_NONBLOCK) == -1 ||
            setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == -1 ||
            setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == -1 ||
            setsockopt(client, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == -1)
            fail("a client's options");
        create_event(client, READABLE, on_readable);
    }
}

static int loop(void *arg)
{
    long left = next_tick_us - now_us();
    struct timespec wait = {0, left > 0 ? left * 1000 : 0};
    (void)arg;
    int count = ff_kevent(kq, NULL, 0, events, FD_MAX, &wait);
    for (int i = 0; i < count; i++) {
        int fd = (int)events[i].ident, mask = events[i].filter == EVFILT_READ ? READABLE : WRITABLE;
        struct file *file = &files[fd];
        if (file->mask & mask)
            (mask == READABLE ? file->on_read : file->on_write)(fd);
    }
    while (now_us() >= next_tick_us) {
        ticks++;
        next_tick_us += PERIOD_US;
    }
    return 0;
}

int main(int argc, char *argv[])
{
    struct sockaddr_in any = of_port(6379);
    pthread_t thread;
    int on = 1;
    folder = argv[argc - 1];
    signal(SIGPIPE, SIG_IGN);
    if (ff_init(argc, argv) != 0)
        return 1;
    is_on = 1;
    next_tick_us = now_us() + PERIOD_US;
    if ((kq = ff_kqueue()) == -1)
        fail("ff_kqueue");
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener == -1 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1)
        fail("socket");
    if (bind(listener, (struct sockaddr *)&any, sizeof any) == -1 || listen(listener, 511) == -1)
        fail("listen");
    if (fcntl(listener, F_SETFL, fcntl(listener, F_GETFL, 0) | O_NONBLOCK) == -1)
        fail("O_NONBLOCK");
    create_event(listener, READABLE, on_arrival);
    if (pthread_create(&thread, NULL, closer, NULL) != 0)
        return 1;
    ff_run(loop, NULL);
    printf("ended after %ld ticks\n", ticks);
    return 0;
}
