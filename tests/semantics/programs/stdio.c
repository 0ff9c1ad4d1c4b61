/* stdio streams on sockets. */
#include "t.h"

int main(void) {
    char line[64];
    int fd = tcp(7001);
    FILE *stream = fdopen(fd, "r+");
    NOTE("stream: %d, fileno: %d", stream != NULL, fileno(stream) == fd);
    setvbuf(stream, NULL, _IOLBF, 0);
    SAY(fprintf(stream, "hello %d\n", 42));
    NOTE("%s", fgets(line, sizeof line, stream) ? line : "nothing");
    SAY(fputs("more\n", stream) < 0);
    SAY(fflush(stream));
    NOTE("%s", fgets(line, sizeof line, stream) ? line : "nothing");
    SAY(fclose(stream));
    SAY(fcntl(fd, F_GETFD));

    fd = tcp(7002);
    stream = fdopen(fd, "r");
    NOTE("%s", fgets(line, sizeof line, stream) ? line : "nothing");
    NOTE("%s", fgets(line, sizeof line, stream) ? line : "nothing");
    NOTE("eof %d, error %d", feof(stream) != 0, ferror(stream) != 0);
    SAY(fclose(stream));
    SAY(close(fd));

    fd = tcp(7001);
    FILE *out = fdopen(dup(fd), "w"), *in = fdopen(fd, "r");
    SAY(fwrite("two streams\n", 1, 12, out) == 12);
    SAY(fclose(out));
    NOTE("%s", fgets(line, sizeof line, in) ? line : "nothing");
    SAY(fclose(in));

    fd = tcp(7001);
    SAY(dprintf(fd, "%d %s %.1f %d %d %d %c %.2f\n", 1, "two", 3.0, 4, 5, 6, '7', 8.25));
    long n = read(fd, line, sizeof line);
    NOTE("%.*s", (int)n, line);
    SAY(close(fd));
    SAY(dprintf(fd, "%d", 1));
}
