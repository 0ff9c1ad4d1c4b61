/* SO_LINGER without a time: the end of the last program that has the connection resets it, as a
 * close does. */
#include "t.h"

enum { LEN = 1000 };
static int rounds = 10;
static char data[LEN];

static void set_linger(int fd, int on, int seconds) {
    struct linger linger = {on, seconds};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

static void by_close(int fd) { close(fd); }
static void by_exit(int fd) { exit(0); }
static void by_exit_at_once(int fd) { _exit(0); }
static void by_signal(int fd) { kill(getpid(), SIGKILL); }
static void by_term(int fd) {
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
}
static void by_exec(int fd) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    execl("/bin/true", "true", (char *)0);
}
static void after_change(int fd) {
    set_linger(fd, 1, 5);
    _exit(0);
}
static void after_switch_off(int fd) {
    set_linger(fd, 0, 0);
    kill(getpid(), SIGKILL);
}
static void by_later_signal(int fd) {
    sleep_ms(20);
    kill(getpid(), SIGKILL);
}
/* The child has it, too, and goes on with it. */
static void with_child(int fd) {
    if (fork()) sleep_ms(50), _exit(0);
    sleep_ms(150);
    send(fd, data, LEN, 0);
    _exit(0);
}

/* The child has used it, and both are killed at once. */
static void with_child_in_a_group(int fd) {
    setpgid(0, 0);
    if (!fork()) {
        send(fd, data, LEN, 0);
        pause();
    }
    sleep_ms(50);
    kill(0, SIGKILL);
    pause();
}

/* The child has made one of its own before or after it has used the connection, which is then the
 * only one left. */
static void outlive(void) {
    setpgid(0, 0);
    sleep_ms(300);
}
static void with_grandchild(int fd, int is_before) {
    setpgid(0, 0);
    if (!fork()) {
        if (!is_before) send(fd, data, LEN, 0);
        if (!fork()) outlive(), set_linger(fd, 0, 0), _exit(0);
        if (is_before) sleep_ms(10), send(fd, data, LEN, 0);
        pause();
    }
    sleep_ms(100);
    kill(0, SIGKILL);
    pause();
}
static void with_earlier_grandchild(int fd) { with_grandchild(fd, 1); }
static void with_later_grandchild(int fd) { with_grandchild(fd, 0); }
/* A process that has it from the child by a message is the only one left. */
static void with_receiver(int fd) {
    int pair[2];
    setpgid(0, 0);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (!fork()) {
        close(fd);
        fd = receive_fd(pair[0]);
        outlive(), set_linger(fd, 0, 0), _exit(0);
    }
    if (!fork()) {
        send(fd, data, LEN, 0);
        send_fd(pair[1], fd);
        pause();
    }
    sleep_ms(100);
    kill(0, SIGKILL);
    pause();
}

/* A child uses it, and is the only other process that has it: a message to another one has failed,
 * or another child has ended. The owner is killed, the child goes on. */
static void goes_on(int fd) {
    send(fd, data, LEN, 0);
    sleep_ms(200);
    send(fd, data, LEN, 0);
    set_linger(fd, 0, 0);
    _exit(0);
}
static void fail_to_send(int fd) {
    char byte = 'd', room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int pair[2];
    sleep_ms(50);
    *head = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair), close(pair[1]);
    if (sendmsg(pair[0], &message, MSG_NOSIGNAL) >= 0) NOTE("it was sent");
    sleep_ms(50);
}
static void end_of_another(void) {
    pid_t other = fork();
    if (!other) {
        sleep_ms(30);
        _exit(0);
    }
    waitpid(other, 0, 0);
    sleep_ms(70);
}
static void after_failed_message(int fd) {
    if (!fork()) goes_on(fd);
    fail_to_send(fd);
    kill(getpid(), SIGKILL);
}
static void after_another_child(int fd) {
    if (!fork()) goes_on(fd);
    end_of_another();
    kill(getpid(), SIGKILL);
}

/* As these, of a child that uses it for the first time after the owner's end. */
static void begins_later(int fd) {
    sleep_ms(300);
    goes_on(fd);
}
static void unused_after_failed_message(int fd) {
    if (!fork()) begins_later(fd);
    fail_to_send(fd);
    kill(getpid(), SIGKILL);
}
static void unused_after_another_child(int fd) {
    if (!fork()) begins_later(fd);
    end_of_another();
    kill(getpid(), SIGKILL);
}
static void unused_after_earlier_child(int fd) {
    if (!fork()) sleep_ms(30), _exit(0);
    if (!fork()) begins_later(fd);
    wait(0);
    sleep_ms(70);
    kill(getpid(), SIGKILL);
}
static void unused_after_grandchild(int fd) {
    if (!fork()) {
        end_of_another();
        begins_later(fd);
    }
    end_of_another();
    kill(getpid(), SIGKILL);
}

/* A child that has accepted a connection of the peer's sends something and ends. */
static void once(int port, const char *what, int is_inherited, void (*end)(int), char *line) {
    int ready[2], go[2];
    char byte;
    pipe(ready), pipe(go);
    pid_t pid = fork();
    if (!pid) {
        int listening = strchr(what, ':') ? socket(AF_INET6, SOCK_STREAM, 0) : -1, one = 1;
        struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
        if (listening < 0) listening = listener(port);
        else {
            setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            bind(listening, (void *)&any, sizeof any), listen(listening, 16);
        }
        if (is_inherited) set_linger(listening, 1, 0);
        write(ready[1], "x", 1);
        int fd = accept(listening, 0, 0);
        close(listening), close(ready[0]), close(ready[1]), close(go[1]);
        if (!is_inherited) set_linger(fd, 1, 0);
        /* A connect() of the peer's that has not returned would tell of the reset itself. */
        read(go[0], &byte, 1), close(go[0]);
        send(fd, data, LEN, 0);
        end(fd);
        _exit(0);
    }
    close(ready[1]), close(go[0]);
    read(ready[0], &byte, 1), close(ready[0]);
    int asked = ask_peer(port, what);
    memset(line, 0, 64);
    read_all(asked, line, 10);
    write(go[1], "x", 1), close(go[1]);
    memset(line, 0, 64);
    read_all(asked, line, 63);
    line[strcspn(line, "\n")] = 0;
    close(asked);
    waitpid(pid, 0, 0);
}

/* The answers of several rounds, each with its number. */
static void many(const char *name, const char *what, int is_inherited, void (*end)(int)) {
    static int port = 9100;
    char first[64] = "", line[64];
    int same = 0;
    for (int i = 0; i < rounds; i++) {
        once(port++, what, is_inherited, end, line);
        if (!i) strcpy(first, line);
        if (strcmp(first, line)) NOTE("%s: %s", name, line);
        else same++;
    }
    NOTE("%s: %s, %d of %d", name, first, same, rounds);
}

int main(void) {
    char six[64];
    snprintf(six, sizeof six, "ends %s", getenv("OWN_IP6"));
    for (int i = 0; i < 2; i++) {
        const char *what = i ? six : "ends";
        NOTE("over IPv%d", i ? 6 : 4);
        many("close", what, 0, by_close);
        many("exit", what, 0, by_exit);
        many("_exit", what, 0, by_exit_at_once);
        many("SIGTERM", what, 0, by_term);
        many("SIGKILL", what, 0, by_signal);
        many("SIGKILL later", what, 0, by_later_signal);
        many("exec", what, 0, by_exec);
    }
    many("_exit, set on the listener", "ends", 1, by_exit_at_once);
    many("SIGKILL, set on the listener", "ends", 1, by_signal);
    many("_exit with a time", "ends", 0, after_change);
    many("SIGKILL, switched off again", "ends", 0, after_switch_off);
    many("a child goes on", "ends", 0, with_child);
    many("SIGKILL of a child, too", "ends", 0, with_child_in_a_group);
    many("SIGKILL of a child, too, but not of its earlier child", "ends", 0,
         with_earlier_grandchild);
    many("SIGKILL of a child, too, but not of its later child", "ends", 0, with_later_grandchild);
    many("SIGKILL of a child, too, but not of a receiver", "ends", 0, with_receiver);
    many("SIGKILL after a message that has failed", "ends", 0, after_failed_message);
    many("SIGKILL after the end of another child", "ends", 0, after_another_child);
    rounds = 3;
    many("SIGKILL after a failed message, not used before", "ends", 0, unused_after_failed_message);
    many("SIGKILL after the end of another child, not used before", "ends", 0,
         unused_after_another_child);
    many("SIGKILL after the end of an earlier child, not used before", "ends", 0,
         unused_after_earlier_child);
    many("SIGKILL after the end of a grandchild, not used before", "ends", 0,
         unused_after_grandchild);
}
