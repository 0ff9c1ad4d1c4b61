/* A program that inherits a listener over exec, as another user, while the one that started it goes
 * on watching it: dovecot's login processes. */
#include "t.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Another user, who may still read what root has built. */
static void become_another(void) {
    unsigned reads = 1 << CAP_DAC_READ_SEARCH;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = reads, .permitted = reads, .inheritable = reads}};
    prctl(PR_SET_KEEPCAPS, 1);
    SAY(setresgid(33, 33, 33));
    SAY(setresuid(33, 33, 33));
    SAY(syscall(SYS_capset, &header, data));
    SAY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0));
}

static void login(int own) {
    char line[16] = "";
    SAY(getuid());
    ask_peer(7323, "hello");
    int fd = OPEN(accept(own, 0, 0));
    SAY(read_all(fd, line, 6));
    NOTE("%s", line);
}

int main(int argc, char **argv) {
    int status;
    if (argc > 1) return login(atoi(argv[1])), 0;
    int own = listener(7323);
    struct pollfd watched = {own, POLLIN, 0};
    SAY(poll(&watched, 1, 100));
    pid_t child = fork();
    if (!child) {
        char number[16];
        become_another();
        snprintf(number, sizeof number, "%d", own);
        execl("/proc/self/exe", argv[0], number, (char *)0);
        NOTE("exec: %s", name_of(errno));
        _exit(1);
    }
    waitpid(child, &status, 0);
    NOTE("the login: %d", WEXITSTATUS(status));
    return 0;
}
