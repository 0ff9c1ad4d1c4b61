/* login_tty and forkpty where a connection is 0, 1 and 2. */
#include "t.h"
#include <pty.h>
#include <utmp.h>

static int saved;

static void child_of(const char *name, int connection) {
    char buf[64];
    dprintf(saved, "%s: terminals %d %d %d\n", name, isatty(0), isatty(1), isatty(2));
    long n = write(1, "from the child\n", 15);
    n = read(0, buf, sizeof buf);
    dprintf(saved, "it hears %.*s", (int)n, buf);
    n = write(connection, "by the connection", 17);
    n = read_all(connection, buf, 17);
    dprintf(saved, "and %.*s\n", (int)n, buf);
    _exit(5);
}

static void parent_of(int master) {
    char line[64];
    long n = read_all(master, line, 16);
    dprintf(saved, "the terminal says %.*s\n", (int)strcspn(line, "\r\n"), line);
    if (write(master, "hi\n", 3) != 3) dprintf(saved, "nothing to write to\n");
    int status;
    wait(&status);
    dprintf(saved, "it left with %d\n", WEXITSTATUS(status));
    n = write(1, "still there", 11);
    n = read_all(0, line, 11);
    dprintf(saved, "the parent has %.*s\n", (int)n, line);
    close(master);
}

int main(void) {
    int fd = tcp(7001), master, terminal;
    saved = dup(1);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    if (!forkpty(&master, 0, 0, 0)) child_of("forkpty", fd);
    parent_of(master);
    if (openpty(&master, &terminal, 0, 0, 0)) return 1;
    if (!fork()) {
        close(master);
        if (login_tty(terminal)) _exit(1);
        child_of("login_tty", fd);
    }
    close(terminal);
    parent_of(master);
    dprintf(saved, "login_tty of no terminal: %d\n", login_tty(fd));
}
