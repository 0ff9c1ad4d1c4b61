/* A program that may have no other thread or process, as sandboxes and dovecot's login
 * processes. */
#include "t.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit none = {0, 0};
    char line[16] = "";
    SAY(setresgid(33, 33, 33));
    SAY(setresuid(33, 33, 33));
    SAY(setrlimit(RLIMIT_NPROC, &none));
    int fd = tcp(7001);
    SAY(write(fd, "abc", 3));
    SAY(read_all(fd, line, 3));
    int own = listener(7322);
    ask_peer(7322, "hello");
    int from = OPEN(accept(own, 0, 0));
    SAY(read_all(from, line, 6));
    NOTE("%s", line);
    SAY(close(from));
    fd = tcp(7012);
    static char all[1 << 20];
    long n, sum = 0;
    while ((n = read(fd, all, sizeof all)) > 0) sum += n;
    NOTE("%ld bytes", sum);
    return 0;
}
