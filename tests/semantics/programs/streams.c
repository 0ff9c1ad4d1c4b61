/* The standard streams of a program that puts a connection under 0, 1 and 2. */
#include "t.h"

static int fd, saved;

/* What the peer has sent back. */
static void echoed(long len) {
    char buf[256];
    len = read_all(fd, buf, len);
    dprintf(saved, "echoed: %.*s\n", (int)len, buf);
}

int main(void) {
    char line[64];
    fd = tcp(7001), saved = dup(1);
    printf("printed before, ");
    if (dup2(fd, 1) != 1) return 1;
    printf("printed after, ");
    dprintf(saved, "fileno: %d\n", fileno(stdout));
    puts("put");
    putchar('c'), fwrite("d\n", 1, 2, stdout);
    if (fflush(stdout)) return 2;
    echoed(strlen("printed before, printed after, put\ncd\n"));

    int own_error = dup(2);
    dup2(fd, 2);
    fprintf(stderr, "error %d", 3);
    errno = ENOENT;
    perror(" of mine");
    echoed(strlen("error 3 of mine: No such file or directory\n"));
    dup2(own_error, 2);

    setvbuf(stdout, 0, _IOLBF, 0);
    printf("a line\nhalf");
    echoed(strlen("a line\n"));
    fflush(stdout);
    echoed(4);

    int own_input = dup(0);
    dup2(fd, 0);
    printf("one\ntwo 2\nthree");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    dprintf(saved, "fgets: %s", line);
    int number;
    if (scanf("%63s %d", line, &number) != 2) return 4;
    dprintf(saved, "scanf: %s %d\n", line, number);
    for (int i = 0; i < 6; i++) dprintf(saved, "[%d]", getchar());
    dprintf(saved, "\n");
    shutdown(1, SHUT_WR);
    int end = getchar();
    dprintf(saved, "at the end: %d, eof %d, error %d\n", end, feof(stdin) != 0, ferror(stdin) != 0);

    /* Back to what they were. */
    dup2(own_input, 0);
    dup2(saved, 1);
    close(fd);
    clearerr(stdin);
    NOTE("to standard output again; getchar %d", getchar());
    clearerr(stdin);

    /* A child of its own, as inetd starts one, without an exec. */
    fd = tcp(7001);
    if (!fork()) {
        dup2(fd, 0), dup2(fd, 1);
        close(fd);
        printf("hello\n");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) _exit(1);
        dprintf(saved, "child: %s", line);
        exit(0);
    }
    int status;
    wait(&status);
    NOTE("it left with %d", WEXITSTATUS(status));
    close(fd);

    /* The peer counts what exit writes out. */
    fd = tcp(7004);
    if (!fork()) {
        dup2(fd, 1);
        printf("written by exit");
        exit(0);
    }
    wait(&status);
    shutdown(fd, SHUT_WR);
    long len = read_all(fd, line, sizeof line);
    NOTE("%.*s bytes came, and it left with %d", (int)len, line, WEXITSTATUS(status));
    close(fd);

    /* A long buffer waits, whatever comes under it meanwhile: the child ends without a word. */
    fd = tcp(7004);
    static char long_one[50000], text[40000];
    memset(text, '.', sizeof text), text[39999] = 0;
    if (!fork()) {
        setvbuf(stdout, long_one, _IOFBF, sizeof long_one);
        fputs(text, stdout);
        dup2(fd, 1);
        _exit(0);
    }
    wait(&status);
    shutdown(fd, SHUT_WR);
    len = read_all(fd, line, sizeof line);
    NOTE("%.*s bytes came", (int)len, line);
    close(fd);

    /* What exit writes out to a connection of its own. */
    int server = listener(8372);
    if (!fork()) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect_to(fd, own_ip(), 8372)) _exit(1);
        dup2(fd, 1);
        printf("the last words");
        exit(0);
    }
    fd = accept(server, 0, 0);
    len = read_all(fd, line, sizeof line);
    wait(&status);
    NOTE("%.*s, and it left with %d", (int)len, line, WEXITSTATUS(status));
}
