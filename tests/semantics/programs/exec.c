/* New programs by every call, with a cleared environment: what was preloaded stays. */
#include "t.h"
#include <spawn.h>

#define TEN "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"

static char self[256], preloaded[512];

static void ended(const char *what) {
    int status;
    fflush(stdout);
    wait(&status);
    NOTE("%s: exit %d", what, WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    if (argc > 1) {
        /* Started by one of the calls: name, what was preloaded, ten numbers. */
        const char *now = getenv("LD_PRELOAD");
        int whole = strcmp(argv[2], now ? now : "") == 0;
        NOTE("  %s: %d arguments, preloaded as before: %s", argv[1], argc - 3,
             whole ? "yes" : "no");
        return argc == 13 && atoi(argv[12]) == 10 ? 0 : 1;
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    snprintf(preloaded, sizeof preloaded, "%s", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "");
    char *none[] = {NULL}, *some[] = {"A=b", NULL};
    char *list[] = {"x", "", preloaded, TEN, NULL};

    if (!fork()) execl(self, "x", "execl", preloaded, TEN, NULL), _exit(9);
    ended("execl");
    if (!fork()) clearenv(), execlp(self, "x", "execlp", preloaded, TEN, NULL), _exit(9);
    ended("execlp");
    if (!fork()) execle(self, "x", "execle", preloaded, TEN, NULL, some), _exit(9);
    ended("execle");
    list[1] = "execv";
    if (!fork()) clearenv(), execv(self, list), _exit(9);
    ended("execv");
    list[1] = "execve";
    if (!fork()) execve(self, list, none), _exit(9);
    ended("execve");
    if (!fork()) execve(self, list, NULL), _exit(9);
    ended("execve without an environment");
    list[1] = "execvpe";
    if (!fork()) execvpe(self, list, some), _exit(9);
    ended("execvpe");
    list[1] = "fexecve";
    if (!fork()) fexecve(open(self, O_RDONLY), list, some), _exit(9);
    ended("fexecve");
    list[1] = "vfork";
    if (!vfork()) execve(self, list, none), _exit(9);
    ended("vfork");
    pid_t pid;
    list[1] = "posix_spawn";
    int spawned = posix_spawn(&pid, self, NULL, NULL, list, none);
    ended("posix_spawn");
    SAY(spawned);
    list[1] = "posix_spawnp";
    spawned = posix_spawnp(&pid, self, NULL, NULL, list, some);
    ended("posix_spawnp");
    SAY(spawned);
    SAY(posix_spawn(&pid, "/nonexistent", NULL, NULL, list, none));
    SAY(execl("/nonexistent", "x", TEN, NULL));
    char line[1024];
    snprintf(line, sizeof line, "%s system '%s' 1 2 3 4 5 6 7 8 9 10", self, preloaded);
    clearenv();
    SAY(system(line));
    snprintf(line, sizeof line, "%s popen '%s' 1 2 3 4 5 6 7 8 9 10", self, preloaded);
    FILE *shell = popen(line, "r");
    if (fgets(line, sizeof line, shell)) printf("%s", line);
    SAY(pclose(shell));
    NOTE("own environment still cleared: %d", getenv("LD_PRELOAD") == NULL);
    fflush(stdout);
    if (!fork()) exit(7);
    ended("exit");
    if (!fork()) quick_exit(8);
    ended("quick_exit");
    if (!fork()) _Exit(9);
    ended("_Exit");
    close(fd);
}
