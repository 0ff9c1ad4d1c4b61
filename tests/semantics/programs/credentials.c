/* Rights that the kernel keeps for each thread: dropped in part, as proftpd's sessions do, and with
   the user changed after that. glibc ends a process of which one thread may do what another one may
   not. */
#include "t.h"
#include <dirent.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int capset(cap_user_header_t, const cap_user_data_t);

static void use_the_network(void) {
    char b[3];
    int fd = tcp(7001);
    SAY(send(fd, "abc", 3, 0));
    SAY(recv(fd, b, 3, MSG_WAITALL));
}

/* What each thread of the process has, as /proc tells it; the order of threads says nothing. */
static void tell(const char *what) {
    char path[300], line[256], first[2048] = "", all[2048];
    DIR *tasks = opendir("/proc/self/task");
    int differ = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        *all = 0;
        while (status && fgets(line, sizeof line, status))
            if (!strncmp(line, "Uid:", 4) || !strncmp(line, "Gid:", 4) ||
                !strncmp(line, "CapEff", 6) || !strncmp(line, "CapPrm", 6) ||
                !strncmp(line, "CapAmb", 6) || !strncmp(line, "NoNewPrivs", 10))
                strcat(all, line);
        if (status) fclose(status);
        if (*first && strcmp(first, all)) differ = 1;
        strcpy(first, all);
    }
    closedir(tasks);
    for (char *at = first; *at; at++) *at = *at == '\n' || *at == '\t' ? ' ' : *at;
    NOTE("%s: %s%s", what, first, differ ? "threads differ" : "");
}

static int keep(unsigned effective, unsigned permitted, int raw) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = effective, .permitted = permitted}};
    return raw ? syscall(SYS_capset, &header, data) : capset(&header, data);
}

static void session(int raw) {
    unsigned some = 1 << CAP_SETUID | 1 << CAP_SETGID | 1 << CAP_NET_BIND_SERVICE;
    use_the_network();
    tell("at first");
    SAY(setreuid(33, 0));
    SAY(keep(0, some, raw));
    SAY(raw ? syscall(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0) : prctl(PR_SET_KEEPCAPS, 1));
    SAY(setreuid(33, 33));
    SAY(keep(some, some, raw));
    tell("as another user");
    SAY(setresuid(-1, 0, -1));
    SAY(setresuid(-1, 33, -1));
    SAY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    SAY(keep(0, 0, raw));
    tell("with nothing");
    SAY(setresuid(-1, 0, -1));
    use_the_network();
}

static void by_raw_calls(int unused) {
    use_the_network();
    SAY(syscall(SYS_setgroups, 0, 0));
    SAY(syscall(SYS_setresgid, 33, 33, 33));
    SAY(syscall(SYS_setresuid, 33, 33, 33));
    tell("by raw calls");
    use_the_network();
}

/* Threads that a first datagram has started get no processor before the user changes. */
static void at_once(int unused) {
    cpu_set_t one;
    struct sched_param real_time = {.sched_priority = 1};
    struct sockaddr_in to = at(peer_ip(), 7005);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &real_time);
    sendto(fd, "x", 1, 0, (void *)&to, sizeof to);
    syscall(SYS_setgroups, 0, 0);
    syscall(SYS_setresgid, 33, 33, 33);
    syscall(SYS_setresuid, 33, 33, 33);
    tell("at once");
}

static void in_child(const char *what, void (*does)(int), int with) {
    int status = 0;
    pid_t pid = fork();
    if (!pid) does(with), exit(0);
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) NOTE("%s: ended by signal %d", what, WTERMSIG(status));
    else NOTE("%s: exit %d", what, WEXITSTATUS(status));
}

int main(void) {
    in_child("a session", session, 0);
    in_child("a session by raw calls", session, 1);
    in_child("another user by raw calls", by_raw_calls, 0);
    in_child("another user at once", at_once, 0);
    return 0;
}
