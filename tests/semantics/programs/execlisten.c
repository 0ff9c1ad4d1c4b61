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

static void login(int own, int port) {
    char line[16] = "";
    SAY(getuid());
    ask_peer(port, "hello");
    int fd = OPEN(accept(own, 0, 0));
    SAY(read_all(fd, line, 6));
    NOTE("%s", line);
}

/* `link`: the interface that the listener is bound to. */
static void start(const char *self, int port, const char *link) {
    int status, own = listener(port);
    if (link) SAY(setsockopt(own, SOL_SOCKET, SO_BINDTODEVICE, link, strlen(link) + 1));
    struct pollfd watched = {own, POLLIN, 0};
    SAY(poll(&watched, 1, 100));
    pid_t child = fork();
    if (!child) {
        char number[16], text[16];
        become_another();
        snprintf(number, sizeof number, "%d", own);
        snprintf(text, sizeof text, "%d", port);
        execl("/proc/self/exe", self, number, text, (char *)0);
        NOTE("exec: %s", name_of(errno));
        _exit(1);
    }
    waitpid(child, &status, 0);
    NOTE("the login: %d", WEXITSTATUS(status));
    close(own);
}

int main(int argc, char **argv) {
    if (argc > 2) return login(atoi(argv[1]), atoi(argv[2])), 0;
    start(argv[0], 7323, 0);
    start(argv[0], 7324, "ss0");
    return 0;
}
