/* Whether io_uring is to be had does not depend on what the process has made before. */
#include "t.h"
#include <sys/syscall.h>

static int ring(void) {
    char params[120] = {0};
    int fd = syscall(SYS_io_uring_setup, 4, params);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

int main(void) {
    int before = ring();
    int fd = tcp(7001);
    NOTE("%s", ring() == before ? "as before" : "not as before");
    close(fd);
}
