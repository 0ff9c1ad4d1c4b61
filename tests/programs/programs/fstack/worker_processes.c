/* A master and workers that call the stack as nginx's port to F-Stack does: the functions of
 * libc are the program's own and go to the stack for numbers from an offset on, each worker
 * calls ff_init after the fork, its listeners and its kqueue come after that, and it ends by
 * exit() inside the loop of ff_run. A descriptor of the kernel is looked at by an epoll of its
 * own.
 *
 *     worker_processes CONF WORKERS RUN_DIR UPSTREAM
 *
 * Port 80 (stack): /hello, /pid, /large (300000 bytes), /upstream (what UPSTREAM says at port
 * 8000); port 81 (kernel): /pid. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ff_api.h"
#include "ff_config.h"
#include "offset_calls.h"

#define EVENTS 512
#define CHANGES 512
#define WORKERS_MAX 8
#define LARGE 300000
#define HOST_TURN_MS 30
#define KERNEL 1

struct event {
    struct connection *of;
    void (*handler)(struct event *);
    unsigned instance : 1, active : 1, ready : 1;
};

struct connection {
    int fd, is_listener, is_kernel, instance;
    struct event read, write;
    struct connection *other;
    char bytes[1024];
    size_t count, left;
};

static struct connection connections[WORKERS_MAX * 128];
static struct kevent changes[CHANGES], events[EVENTS], notify;
static int nchanges, kq = -1, ep = -1, is_quitting, number, open_connections, notified;
static char *conf, *run_dir, *upstream, page[LARGE];
static volatile sig_atomic_t wants_end, child_ended;

static void fail(const char *what)
{
    fprintf(stderr, "worker %d: %s: %s\n", number, what, strerror(errno));
    exit(2);
}

/* Changes are kept until the next wait, as nginx keeps them. */
static void set_event(struct event *event, int filter, int flags)
{
    struct timespec now = {0, 0};
    if (nchanges == CHANGES) {
        if (kevent(kq, changes, nchanges, NULL, 0, &now) == -1)
            fail("kevent");
        nchanges = 0;
    }
    event->active = !(flags & EV_DELETE);
    EV_SET(&changes[nchanges], (uintptr_t)event->of->fd, (short)filter, (unsigned short)flags, 0, 0,
           (void *)((uintptr_t)event | event->instance));
    nchanges++;
}

static struct connection *take(int fd, int is_kernel)
{
    struct connection *c = connections;
    while (c->fd != -1)
        c++;
    c->fd = fd;
    c->is_kernel = is_kernel;
    c->instance = !c->instance;
    c->count = c->left = 0;
    c->other = NULL;
    c->is_listener = 0;
    c->read.of = c->write.of = c;
    c->read.instance = c->write.instance = (unsigned)c->instance & 1;
    c->read.active = c->write.active = 0;
    return c;
}

static void end(struct connection *c)
{
    if (c->other) {
        struct connection *other = c->other;
        c->other = other->other = NULL;
        end(other);
    }
    if (close(c->fd) == -1)
        fail("close");
    for (int i = 0; i < nchanges; i++)
        if ((int)changes[i].ident == c->fd && changes[i].filter < 0 &&
            changes[i].filter >= EVFILT_WRITE)
            changes[i--] = changes[--nchanges];
    c->fd = -1;
    open_connections--;
}

static void want(struct connection *c, int filter)
{
    struct event *event = filter == EVFILT_READ ? &c->read : &c->write;
    if (c->is_kernel) {
        struct epoll_event ee = {EPOLLIN | EPOLLRDHUP, {.ptr = c}};
        if (!event->active && epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ee) == -1)
            fail("epoll_ctl");
        event->active = 1;
    } else if (!event->active)
        set_event(event, filter, EV_ADD | EV_ENABLE | EV_CLEAR);
}

static void send_rest(struct event *event)
{
    struct connection *c = event->of;
    while (c->left > 0) {
        struct iovec two[2] = {{page, c->left / 2}, {page, c->left - c->left / 2}};
        ssize_t sent = writev(c->fd, two, 2);
        if (sent < 0 && errno == EAGAIN) {
            c->write.handler = send_rest;
            want(c, EVFILT_WRITE);
            return;
        }
        if (sent < 0) {
            end(c);
            return;
        }
        c->left -= (size_t)sent;
    }
}

static void answer(struct connection *c, const char *text, size_t len)
{
    char head[128];
    int count = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", len);
    struct iovec two[2] = {{head, (size_t)count}, {(void *)text, len <= sizeof c->bytes ? len : 0}};
    if (writev(c->fd, two, 2) < 0)
        fail("writev");
    c->left = len <= sizeof c->bytes ? 0 : len;
    send_rest(&c->write);
}

static void on_upstream_read(struct event *event)
{
    struct connection *c = event->of;
    char text[1024];
    ssize_t got = recv(c->fd, text, sizeof text, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    struct connection *client = c->other;
    c->other = client->other = NULL;
    end(c);
    if (got > 0)
        answer(client, text, (size_t)got);
    else
        end(client);
}

static void on_upstream_connected(struct event *event)
{
    struct connection *c = event->of;
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) == -1 || error) {
        errno = error;
        end(c->other);
        return;
    }
    set_event(&c->write, EVFILT_WRITE, EV_DELETE);
    if (send(c->fd, "ask", 3, 0) != 3)
        fail("send");
    c->read.handler = on_upstream_read;
    want(c, EVFILT_READ);
}

static void ask_upstream(struct connection *client)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8000)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_FSTACK, 0);
    inet_pton(AF_INET, upstream, &to.sin_addr);
    if (fd == -1 || ioctl(fd, FIONBIO, &on) == -1)
        fail("socket");
    struct connection *c = take(fd, 0);
    open_connections++;
    c->other = client;
    client->other = c;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno != EINPROGRESS)
        fail("connect");
    c->write.handler = on_upstream_connected;
    want(c, EVFILT_WRITE);
}

static void on_request(struct event *event)
{
    struct connection *c = event->of;
    char pid[32];
    /* Read until there is nothing: a socket that blocked here would stop the worker. */
    for (;;) {
        ssize_t got = recv(c->fd, c->bytes + c->count, sizeof c->bytes - 1 - c->count, 0);
        if (got < 0 && errno == EAGAIN)
            break;
        if (got <= 0) {
            end(c);
            return;
        }
        c->count += (size_t)got;
    }
    c->bytes[c->count] = 0;
    if (!strstr(c->bytes, "\r\n\r\n"))
        return;
    c->count = 0;
    if (strncmp(c->bytes, "GET /hello ", 11) == 0)
        answer(c, "hello", 5);
    else if (strncmp(c->bytes, "GET /large ", 11) == 0)
        answer(c, page, LARGE);
    else if (strncmp(c->bytes, "GET /upstream ", 14) == 0)
        ask_upstream(c);
    else
        answer(c, pid, (size_t)snprintf(pid, sizeof pid, "%d", (int)getpid()));
}

static void on_accept(struct event *event)
{
    struct connection *listener = event->of;
    struct sockaddr_in peer, own;
    socklen_t len = sizeof peer, own_len = sizeof own;
    int on = 1;
    for (;;) {
        int fd = accept4(listener->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK);
        if (fd == -1 && (errno == EAGAIN || errno == ECONNABORTED))
            return;
        if (fd == -1)
            fail("accept4");
        if (getsockname(fd, (struct sockaddr *)&own, &own_len) == -1 || own.sin_family != AF_INET)
            fail("getsockname");
        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == -1)
            fail("TCP_NODELAY");
        struct connection *c = take(fd, listener->is_kernel);
        open_connections++;
        c->read.handler = on_request;
        want(c, EVFILT_READ);
    }
}

static struct connection *listener_on(int port, int is_kernel)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | (is_kernel ? 0 : SOCK_FSTACK), 0);
    if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        (is_kernel && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == -1))
        fail("socket");
    if (ioctl(fd, FIONBIO, &on) == -1)
        fail("FIONBIO");
    if (bind(fd, (struct sockaddr *)&any, sizeof any) == -1)
        fail("bind");
    if (listen(fd, 511) == -1)
        fail("listen");
    struct connection *c = take(fd, is_kernel);
    c->is_listener = 1;
    c->read.handler = on_accept;
    return c;
}

static void on_channel(struct event *event)
{
    char command;
    if (read(event->of->fd, &command, 1) == 1 && command == 'Q')
        is_quitting = 1;
}

static void host_events(void)
{
    struct epoll_event due[16];
    int count = epoll_wait(ep, due, 16, 0);
    for (int i = 0; i < count; i++) {
        struct connection *c = (struct connection *)due[i].data.ptr;
        c->read.handler(&c->read);
    }
}

static int stack_events(void)
{
    int given = nchanges;
    nchanges = 0;
    int count = kevent(kq, changes, given, events, EVENTS, NULL);
    if (count == -1 && errno != EINTR)
        fail("kevent");
    for (int i = 0; i < count; i++) {
        if (events[i].flags & EV_ERROR) {
            errno = (int)events[i].data;
            fail("change");
        }
        if (events[i].filter == EVFILT_USER) {
            notified++;
            continue;
        }
        struct event *event = (struct event *)((uintptr_t)events[i].udata & ~(uintptr_t)1);
        int is_stale = event->of->fd == -1 || event->instance != ((uintptr_t)events[i].udata & 1);
        if (!is_stale && event->active)
            event->handler(event);
    }
    return count;
}

static int loop(void *arg)
{
    static struct timeval looked;
    struct timeval now;
    (void)arg;
    gettimeofday(&now, NULL);
    if ((now.tv_sec - looked.tv_sec) * 1000 + (now.tv_usec - looked.tv_usec) / 1000 >=
        HOST_TURN_MS) {
        looked = now;
        host_events();
    }
    stack_events();
    if (is_quitting == 1) {
        is_quitting = 2;
        for (size_t i = 0; i < sizeof connections / sizeof *connections; i++)
            if (connections[i].fd != -1 && connections[i].is_listener)
                end(&connections[i]), open_connections++;
    }
    if (is_quitting && open_connections == 0) {
        /* A kqueue's number has no offset: libc closes it. */
        if (close(kq) == -1)
            fail("close");
        printf("worker %d: notified %d\n", number, notified);
        exit(0);
    }
    return 0;
}

static void worker(int channel, sem_t *begun)
{
    char words[4][PATH_MAX], run[PATH_MAX];
    char *argv[] = {words[0], words[1], words[2], words[3], (char *)"--run-dir", run, NULL};
    strcpy(words[0], "nginx");
    snprintf(words[1], PATH_MAX, "--conf=%s", conf);
    snprintf(words[2], PATH_MAX, "--proc-id=%d", number);
    snprintf(words[3], PATH_MAX, "--proc-type=%s", number == 0 ? "primary" : "secondary");
    snprintf(run, PATH_MAX, "%s", run_dir);
    if (ff_init(6, argv) != 0)
        fail("ff_init");
    if ((unsigned long)fd_offset + (unsigned)ff_getmaxfd() > INT_MAX)
        fail("ff_getmaxfd");
    is_on = 1;
    if (number == 0)
        sem_post(begun);
    for (size_t i = 0; i < sizeof connections / sizeof *connections; i++)
        connections[i].fd = -1;
    struct connection *stack = listener_on(80, 0), *host = listener_on(81, KERNEL);
    if ((kq = kqueue()) == -1 || (ep = epoll_create(100)) == -1)
        fail("kqueue");
    EV_SET(&notify, 0, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, NULL);
    if (kevent(kq, &notify, 1, NULL, 0, NULL) == -1)
        fail("EVFILT_USER");
    EV_SET(&notify, 0, EVFILT_USER, 0, NOTE_TRIGGER, 0, &notify);
    if (kevent(kq, &notify, 1, NULL, 0, NULL) == -1)
        fail("NOTE_TRIGGER");
    want(stack, EVFILT_READ);
    want(host, EVFILT_READ);
    struct connection *orders = take(channel, KERNEL);
    orders->read.handler = on_channel;
    want(orders, EVFILT_READ);
    ff_run(loop, NULL);
}

static pid_t spawn(int worker_number, int channels[][2], sem_t *begun)
{
    socketpair(AF_UNIX, SOCK_STREAM, 0, channels[worker_number]);
    pid_t pid = fork();
    if (pid == 0) {
        number = worker_number;
        signal(SIGTERM, SIG_DFL);
        worker(channels[number][1], begun);
        exit(3);
    }
    return pid;
}

static void on_signal(int signal)
{
    if (signal == SIGTERM)
        wants_end = 1;
    else
        child_ended = 1;
}

int main(int argc, char *argv[])
{
    int count = argc > 4 ? atoi(argv[2]) : 0, channels[WORKERS_MAX][2], status, worst = 0;
    pid_t pids[WORKERS_MAX];
    struct rlimit limit;
    struct timespec most;
    sigset_t both, before;
    if (count < 1 || count > WORKERS_MAX)
        return 64;
    conf = argv[1];
    run_dir = argv[3];
    upstream = argv[4];
    memset(page, 'L', sizeof page);
    getrlimit(RLIMIT_NOFILE, &limit);
    fd_offset = (int)limit.rlim_cur;
    sem_t *begun = (sem_t *)mmap(NULL, sizeof *begun, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_init(begun, 1, 0);
    signal(SIGTERM, on_signal);
    signal(SIGCHLD, on_signal);
    sigemptyset(&both);
    sigaddset(&both, SIGTERM);
    sigaddset(&both, SIGCHLD);
    for (int i = 0; i < count; i++) {
        pids[i] = spawn(i, channels, begun);
        clock_gettime(CLOCK_REALTIME, &most);
        most.tv_sec += 15;
        while (i == 0 && sem_timedwait(begun, &most) == -1)
            if (errno != EINTR || child_ended)
                return 2;
    }
    sigprocmask(SIG_BLOCK, &both, &before);
    while (!wants_end) {
        sigsuspend(&before);
        for (int i = 0; child_ended && !wants_end && i < count; i++)
            if (waitpid(pids[i], &status, WNOHANG) == pids[i])
                pids[i] = spawn(i, channels, begun);
        child_ended = 0;
    }
    for (int i = 0; i < count; i++)
        if (write(channels[i][0], "Q", 1) != 1)
            worst = 4;
    for (int i = 0; i < count; i++)
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            worst = 5;
    return worst;
}
