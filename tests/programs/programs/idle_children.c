/* Gives each of COUNT connections to another process, while threads fork children that close the
   connections and do nothing. Usage: idle_children PORT HOW COUNT

   HOW: the process is forked ("fork"), started ("spawn", "shell"), or gets the connection in a
   message ("message"). It echoes. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 200, IDLE_MAX = 60, FORKERS = 2, MAKERS = 2, SHELLS = 9 };

extern char **environ;
static int connections[CONNECTIONS_MAX], count, listener, lifeline[2], receiver[2];
static const char *how;
static atomic_int next, idle, is_over;

/* All connections but one. Those that another thread has closed too: the kernel copies its
   descriptors before the memory that would tell. */
static void close_others(int own) {
    close(listener);
    close(SHELLS);
    for (int index = 0; index < count; index++)
        if (connections[index] != own)
            close(connections[index]);
}

static int echo(int sock) {
    char room[100];
    ssize_t len = read(sock, room, sizeof room);
    return len > 0 && write(sock, room, len) == len;
}

static void make_forked(int sock) {
    if (fork() == 0) {
        close_others(sock);
        close(lifeline[1]);
        while (echo(sock)) {
        }
        _exit(0);
    }
}

static void make_spawned(int sock) {
    char *words[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, sock, 0);
    posix_spawn_file_actions_adddup2(&actions, sock, 1);
    if (posix_spawnp(&pid, "cat", &actions, NULL, words, environ) != 0)
        abort();
    posix_spawn_file_actions_destroy(&actions);
}

static void make_by_shell(int sock) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one_at_a_time);
    dup2(sock, SHELLS);
    if (system("cat <&9 >&9 9>&- &") != 0)
        abort();
    close(SHELLS);
    pthread_mutex_unlock(&one_at_a_time);
}

static void send_away(int sock) {
    char space[CMSG_SPACE(sizeof sock)] = {0}, byte = 'c';
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(sizeof sock), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &sock, sizeof sock);
    if (sendmsg(receiver[0], &message, 0) != 1)
        abort();
}

static int receive(void) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    if (recvmsg(receiver[1], &message, MSG_CMSG_CLOEXEC) != 1)
        _exit(0);
    int sock;
    memcpy(&sock, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof sock);
    return sock;
}

/* The process that gets connections in messages. */
static void serve_received(void) {
    struct pollfd all[CONNECTIONS_MAX + 1] = {{receiver[1], POLLIN, 0}};
    int used = 1;
    for (;;) {
        poll(all, used, -1);
        for (int index = used - 1; index > 0; index--)
            if (all[index].revents != 0 && !echo(all[index].fd)) {
                close(all[index].fd);
                all[index] = all[--used];
            }
        if (all[0].revents != 0)
            all[used++] = (struct pollfd){receive(), POLLIN, 0};
    }
}

static void *make_all(void *unused) {
    int index;
    while ((index = atomic_fetch_add(&next, 1)) < count) {
        int sock = connections[index];
        if (strcmp(how, "fork") == 0)
            make_forked(sock);
        else if (strcmp(how, "spawn") == 0)
            make_spawned(sock);
        else if (strcmp(how, "shell") == 0)
            make_by_shell(sock);
        else
            send_away(sock);
        close(sock);
    }
    return unused;
}

static void be_idle(void) {
    char line[30];
    close_others(-1);
    close(lifeline[1]);
    int len = snprintf(line, sizeof line, "idle %d\n", getpid());
    _exit(write(1, line, len) != len || read(lifeline[0], line, 1) != 0);
}

static void *fork_idle(void *unused) {
    for (int left = IDLE_MAX; left > 0 && !is_over; left--) {
        idle++;
        if (fork() == 0)
            be_idle();
    }
    return unused;
}

int main(int argc, char **words) {
    int on = 1;
    /* Nothing else gets the number. */
    dup2(0, SHELLS);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    how = words[2];
    count = atoi(words[3]);
    if (count > CONNECTIONS_MAX || pipe2(lifeline, O_CLOEXEC) != 0)
        return 1;
    signal(SIGCHLD, strcmp(how, "shell") == 0 ? SIG_DFL : SIG_IGN);
    if (strcmp(how, "message") == 0) {
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, receiver);
        if (fork() == 0) {
            close(lifeline[1]);
            close(receiver[0]);
            serve_received();
        }
        close(receiver[1]);
    }
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(listener, 200) != 0)
        return 1;
    for (int index = 0; index < count; index++)
        connections[index] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    pthread_t makers[MAKERS], forkers[FORKERS];
    for (int index = 0; index < FORKERS; index++)
        pthread_create(&forkers[index], NULL, fork_idle, NULL);
    for (int index = 0; index < MAKERS; index++)
        pthread_create(&makers[index], NULL, make_all, NULL);
    for (int index = 0; index < MAKERS; index++)
        pthread_join(makers[index], NULL);
    is_over = 1;
    for (int index = 0; index < FORKERS; index++)
        pthread_join(forkers[index], NULL);
    dprintf(1, "given away beside %d\n", idle);
    pause();
    return argc;
}
