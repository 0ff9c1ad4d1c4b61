/* A program that locks its memory, and what it will map, has little of it all the same. */
#include "t.h"
#include <sys/mman.h>
#include <sys/resource.h>

static long resident_mib(void) {
    char line[128];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &kib);
    fclose(status);
    return kib / 1024;
}

int main(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    char b[3];
    SAY(setrlimit(RLIMIT_MEMLOCK, &all));
    SAY(mlockall(MCL_CURRENT | MCL_FUTURE));
    int fd = tcp(7001);
    SAY(send(fd, "abc", 3, 0));
    SAY(recv(fd, b, 3, MSG_WAITALL));
    NOTE("%s", resident_mib() < 512 ? "little" : "much");
    close(fd);
}
