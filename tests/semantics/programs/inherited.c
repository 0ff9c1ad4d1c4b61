/* A connection that other processes inherit, use or do not use. Each program that is started is
 * this one again. */
#include "t.h"
#include <spawn.h>

extern char **environ;
static char self[256];

static void ended(const char *what, pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) NOTE("%s: signal %d", what, WTERMSIG(status));
    else NOTE("%s: exit %d", what, WEXITSTATUS(status));
}

static pid_t forked(const char *what, int fd) {
    char number[12];
    snprintf(number, sizeof number, "%d", fd);
    pid_t child = fork();
    if (!child) execl(self, self, what, number, NULL), _exit(99);
    return child;
}

static pid_t spawned(const char *what, int fd) {
    char number[12];
    snprintf(number, sizeof number, "%d", fd);
    char *list[] = {self, (char *)what, number, NULL};
    pid_t child = -1;
    if (posix_spawn(&child, self, NULL, NULL, list, environ)) NOTE("posix_spawn failed");
    return child;
}

static int says(int fd, const char *word) {
    char buf[64] = "";
    int len = strlen(word);
    return send(fd, word, len, MSG_NOSIGNAL) == len && read_all(fd, buf, len) == len &&
           !memcmp(buf, word, len);
}

static int again(const char *what, int fd) {
    char buf[64] = "";
    if (!strcmp(what, "nothing")) return 0;
    if (!strcmp(what, "close")) return close(fd);
    if (!strcmp(what, "small"))
        return read_all(fd, buf, 5) == 5 && !memcmp(buf, "first", 5) ? 5 : 90;
    if (!strcmp(what, "bytes")) {
        for (int i = 0; i < 6; i++)
            if (read(fd, buf + i, 1) != 1) return 91;
        return memcmp(buf, "secon", 5) ? 92 : 6;
    }
    if (!strcmp(what, "large"))
        return read(fd, buf, sizeof buf) == 4 && !memcmp(buf, "more", 4) ? 4 : 93;
    if (!strcmp(what, "prompt")) return recv(fd, buf, sizeof buf, MSG_DONTWAIT);
    if (!strcmp(what, "poll")) {
        struct pollfd p = {fd, POLLIN, 0};
        return poll(&p, 1, 0) == 1 && p.revents == POLLIN ? read(fd, buf, 3) : 94;
    }
    if (!strcmp(what, "speaks")) return says(fd, "child") ? 3 : 95;
    if (!strcmp(what, "writes")) return write(fd, "written", 7);
    if (!strcmp(what, "shuts")) return shutdown(fd, SHUT_WR);
    if (!strcmp(what, "family")) {
        int status = 0;
        pid_t child = fork();
        if (!child) _exit(0);
        waitpid(child, &status, 0);
        child = fork();
        if (!child) close(fd), _exit(0);
        waitpid(child, &status, 0);
        child = forked("speaks", fd);
        waitpid(child, &status, 0);
        return says(fd, "then") ? WEXITSTATUS(status) : 96;
    }
    if (!strcmp(what, "orphan")) {
        if (!fork()) _exit((sleep_ms(50), says(fd, "late")) ? 0 : 1);
        return 0;
    }
    if (!strcmp(what, "chain")) {
        char number[12];
        snprintf(number, sizeof number, "%d", dup(fd));
        close(fd);
        execl(self, self, "speaks", number, NULL);
    }
    return 97;
}

int main(int argc, char **argv) {
    char buf[64] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    if (argc > 2) return again(argv[1], atoi(argv[2]));
    pid_t (*start[])(const char *, int) = {forked, spawned};
    for (int way = 0; way < 2; way++) {
        NOTE("%s", way ? "posix_spawn" : "fork and exec");
        int fd = tcp(7001), good = 0, status;
        for (int i = 0; i < 20; i++) {
            const char *what = i % 2 ? "nothing" : "close";
            waitpid(start[way](what, fd), &status, 0);
            good += status == 0 && says(fd, "parent");
        }
        NOTE("goes on beside 20 that do nothing: %d", good);
        SAY(write(fd, "answer", 6));
        readable(fd);
        ended("nothing", start[way]("nothing", fd));
        SAY(recv(fd, buf, 6, MSG_DONTWAIT));

        SAY(write(fd, "firstsecond", 11));
        readable(fd);
        sleep_ms(50);
        ended("five bytes", start[way]("small", fd));
        ended("six bytes, one by one", start[way]("bytes", fd));
        SAY(recv(fd, buf, 64, MSG_DONTWAIT));
        SAY(write(fd, "more", 4));
        readable(fd);
        ended("more room than bytes", start[way]("large", fd));
        SAY(write(fd, "rest", 4));
        SAY(read_all(fd, buf, 4));

        SAY(write(fd, "now", 3));
        readable(fd);
        sleep_ms(50);
        ended("what is there, without waiting", start[way]("prompt", fd));
        SAY(write(fd, "now", 3));
        readable(fd);
        sleep_ms(50);
        ended("poll", start[way]("poll", fd));

        ended("speaks", start[way]("speaks", fd));
        NOTE("parent too: %d", says(fd, "parent"));
        ended("chain", start[way]("chain", fd));
        ended("family", start[way]("family", fd));
        ended("orphan", start[way]("orphan", fd));
        sleep_ms(200);
        NOTE("parent too: %d", says(fd, "parent"));
        ended("writes", start[way]("writes", fd));
        SAY(read_all(fd, buf, 7));
        close(fd);

        NOTE("a child's shutdown is the connection's");
        fd = tcp(7004);
        SAY(write(fd, "12345", 5));
        ended("writes", start[way]("writes", fd));
        ended("shuts", start[way]("shuts", fd));
        SAY(read_all(fd, buf, 3));
        SAY(read_all(fd, buf, 1));
        SAY(send(fd, "x", 1, MSG_NOSIGNAL));
        close(fd);
    }

    NOTE("the last close is a child's");
    int fd = tcp(7004);
    pid_t child = fork();
    if (!child) {
        sleep_ms(100);
        _exit(write(fd, "child", 5) == 5 && shutdown(fd, SHUT_WR) == 0 && read_all(fd, buf, 2) == 2
                  ? buf[0]
                  : 1);
    }
    SAY(close(fd));
    ended("child", child);

    NOTE("children of children");
    fd = tcp(7001);
    child = fork();
    if (!child) {
        for (int i = 0; i < 3; i++) {
            pid_t next = fork();
            if (!next) _exit(says(fd, "deep") ? 0 : 1);
            int status;
            waitpid(next, &status, 0);
            if (status) _exit(2);
        }
        _exit(says(fd, "middle") ? 3 : 4);
    }
    ended("child", child);
    NOTE("parent: %d", says(fd, "parent"));
    child = fork();
    if (!child) {
        char byte = 0;
        if (read(fd, &byte, 1) != 1) _exit(1);
        _exit(byte);
    }
    SAY(write(fd, "AB", 2));
    ended("one byte", child);
    SAY(read_all(fd, buf, 1));
    NOTE("%c", buf[0]);
    close(fd);
}
