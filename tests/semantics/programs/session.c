/* The session of a server, forked for a connection, in a root of its own: it listens and tells the
 * other side where by the connection that it has, as FTP's passive mode does. It looks for who
 * comes only later. */
#include "t.h"

static void session(int control) {
    char place[] = "/tmp/session-XXXXXX", line[16] = "";
    mkdtemp(place);
    SAY(chroot(place));
    SAY(chdir("/"));
    int data = listener(7321);
    fcntl(data, F_SETFL, O_NONBLOCK);
    SAY(write(control, "7321 hello\n", 11));
    sleep_ms(500);
    int fd = OPEN(accept(data, 0, 0));
    SAY(read_all(fd, line, 6));
    NOTE("%s", line);
    exit(0);
}

int main(void) {
    int status, control = tcp(7010);
    pid_t child = fork();
    if (!child) session(control);
    close(control);
    waitpid(child, &status, 0);
    NOTE("the session: %d", WEXITSTATUS(status));
    return 0;
}
