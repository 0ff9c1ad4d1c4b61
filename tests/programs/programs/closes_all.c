/* `closes_all PORT MOMENT HOW FROM`: an echo server that closes all numbers from FROM on which it
   does not use, as old daemons and children before their exec do. MOMENT: before its first socket
   (start), after listen (listen), with each accepted connection (accepted), or in a child that has
   the connection, which goes on with it (child) or leaves it to another program (exec), in the
   parent of such children (parent), or beside threads that wait, one for each (threads). Or
   (generations) three descendants close all of their parents' numbers, and tell how many are left;
   each listens then, at a port of its own. Or (past) the numbers that the program does not know of
   are closed by the system call itself, and used for a file, which it closes. HOW: by
   close in a loop (close), close_range (range), closefrom (from), of the numbers in /proc/self/fd
   (proc), or of none: all are marked close-on-exec, by fcntl (marked) or close_range (markedrange).
   The numbers that became free get a file, which nobody may change. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONNECTIONS 64
#define FILES 100

static const char *how;
static int from, file = -1;
static char buffer[1 << 16];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int is_kept(int number, const int *kept, int count) {
    for (int i = 0; i < count; i++)
        if (kept[i] == number)
            return 1;
    return 0;
}

/* Nothing is open there that the program knows of. */
static void close_one(int number) {
    if (close(number) == 0) {
        fprintf(stderr, "%d was open\n", number);
        exit(1);
    }
    if (errno != EBADF)
        fail("close");
}

static void close_listed(const int *kept, int count) {
    DIR *all = opendir("/proc/self/fd");
    struct dirent *entry;
    if (!all)
        fail("/proc/self/fd");
    while ((entry = readdir(all))) {
        int number = atoi(entry->d_name);
        if (number >= from && number != dirfd(all) && !is_kept(number, kept, count))
            close(number);
    }
    closedir(all);
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void close_ranges(int *kept, int count, int flags) {
    unsigned first = (unsigned)from;
    qsort(kept, (size_t)count, sizeof *kept, compare);
    for (int i = 0; i < count; i++) {
        if (kept[i] < (int)first)
            continue;
        if (kept[i] > (int)first && close_range(first, (unsigned)kept[i] - 1, flags) != 0)
            fail("close_range");
        first = (unsigned)kept[i] + 1;
    }
    if (close_range(first, ~0U, flags) != 0)
        fail("close_range");
}

/* `kept`: what the program uses beside the standard streams and its file. */
static void close_all(int *kept, int count) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int end = limit.rlim_cur > 8192 ? 8192 : (int)limit.rlim_cur, highest = from - 1;
    for (int i = 0; i < count; i++)
        highest = kept[i] > highest ? kept[i] : highest;
    if (!strcmp(how, "close")) {
        for (int number = from; number < end; number++)
            if (!is_kept(number, kept, count))
                close_one(number);
    } else if (!strcmp(how, "marked")) {
        for (int number = from; number < end; number++)
            if (!is_kept(number, kept, count))
                fcntl(number, F_SETFD, FD_CLOEXEC);
    } else if (!strcmp(how, "proc")) {
        close_listed(kept, count);
    } else if (!strcmp(how, "range")) {
        close_ranges(kept, count, 0);
    } else if (!strcmp(how, "markedrange")) {
        close_ranges(kept, count, CLOSE_RANGE_CLOEXEC);
    } else if (!strcmp(how, "from")) {
        closefrom(highest + 1);
    } else {
        exit(2);
    }
}

/* Takes the lowest numbers from FROM on, and lists them with the program's own. */
static int take_numbers(int *kept, int count) {
    char name[] = "/tmp/closes_all_XXXXXX";
    if ((file = mkstemp(name)) < 0 || unlink(name) != 0)
        fail("mkstemp");
    kept[count++] = file;
    for (int i = 0; i < FILES; i++)
        if ((kept[count++] = fcntl(file, F_DUPFD, from)) < 0)
            fail("F_DUPFD");
    return count;
}

static void check_file(void) {
    struct stat found;
    if (file >= 0 && (fstat(file, &found) != 0 || found.st_size != 0))
        fail("the file has changed");
}

static int echo(int sock, int to) {
    ssize_t got = read(sock, buffer, sizeof buffer);
    if (got < 0)
        fail("read");
    for (ssize_t done = 0; done < got;) {
        ssize_t sent = write(to, buffer + done, (size_t)(got - done));
        if (sent < 0)
            fail("write");
        done += sent;
    }
    return got > 0;
}

/* A connection that its thread has left is still the program's number. */
static void *serve_in_thread(void *given) {
    int sock = (int)(long)given;
    static __thread char bytes[1 << 16];
    ssize_t got;
    while ((got = recv(sock, bytes, sizeof bytes, 0)) > 0)
        if (send(sock, bytes, (size_t)got, 0) != got)
            fail("send");
    shutdown(sock, SHUT_RDWR);
    return NULL;
}

static void serve_in_child(int sock, int listener, const char *program, int closes, int is_exec) {
    int kept[1] = {sock};
    if (fork() != 0)
        return;
    close(listener);
    if (closes)
        close_all(kept, 1);
    if (is_exec) {
        if (dup2(sock, 0) != 0 || dup2(sock, 1) != 1)
            fail("dup2");
        if (sock > 2)
            close(sock);
        execl(program, program, "session", (char *)NULL);
        fail("exec");
    }
    while (echo(sock, sock))
        ;
    exit(0);
}

static int count_numbers(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    if (!all)
        fail("/proc/self/fd");
    while (readdir(all))
        count++;
    closedir(all);
    return count - 3;
}

static int listen_at(int port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int sock = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(sock, (struct sockaddr *)&name, sizeof name) != 0 || listen(sock, 50) != 0)
        fail("listen");
    return sock;
}

static void generations(int port) {
    for (int listener = -1, generation = 0;; generation++) {
        if (generation > 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(listener);
            close_all(NULL, 0);
            printf("%d left\n", count_numbers());
        }
        listener = listen_at(port + generation);
        struct pollfd waits = {.fd = listener, .events = POLLIN};
        poll(&waits, 1, 200);
        fflush(stdout);
        if (generation == 3 || fork() != 0)
            break;
    }
    for (;;)
        pause();
}

/* The system call itself, which no library sees. */
static void close_itself(int number) {
#if defined(__x86_64__)
    long result = SYS_close;
    __asm__ volatile("syscall" : "+a"(result) : "D"((long)number) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long call __asm__("x8") = SYS_close;
    register long result __asm__("x0") = number;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(call) : "memory");
#else
#error "unknown processor"
#endif
}

static void close_past_the_library(void) {
    struct stat found;
    if ((file = open("/dev/null", O_RDWR)) < 0)
        fail("/dev/null");
    for (int number = from; number < 8192; number++) {
        if (fstat(number, &found) != 0 || close(number) == 0)
            continue;
        close_itself(number);
        if (fcntl(file, F_DUPFD, number) != number)
            fprintf(stderr, "%d is not free\n", number);
        printf("%s\n", close(number) == 0 ? "closed" : strerror(errno));
    }
    fflush(stdout);
    raise(SIGKILL);
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "session")) {
        while (echo(0, 1))
            ;
        return 0;
    }
    if (count != 5)
        return 2;
    const char *moment = words[2];
    int kept[CONNECTIONS + FILES + 2], used = 0, socks[CONNECTIONS], open_socks = 0;
    how = words[3];
    from = atoi(words[4]);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(moment, "start"))
        close_all(kept, 0);
    if (!strcmp(moment, "generations"))
        generations(atoi(words[1]));
    int listener = listen_at(atoi(words[1]));
    kept[used++] = listener;
    if (!strcmp(moment, "past"))
        close_past_the_library();
    if (!strcmp(moment, "listen")) {
        close_all(kept, used);
        used = take_numbers(kept, used);
    }
    for (;;) {
        struct pollfd waits[CONNECTIONS + 1] = {{.fd = listener, .events = POLLIN}};
        for (int i = 0; i < open_socks; i++)
            waits[i + 1] = (struct pollfd){.fd = socks[i], .events = POLLIN};
        if (poll(waits, (nfds_t)open_socks + 1, 100) < 0 && errno != EINTR)
            fail("poll");
        check_file();
        for (int i = open_socks; i-- > 0;)
            if (waits[i + 1].revents && !echo(socks[i], socks[i])) {
                close(socks[i]);
                memmove(socks + i, socks + i + 1, (size_t)(--open_socks - i) * sizeof *socks);
            }
        if (!(waits[0].revents & POLLIN))
            continue;
        int sock = accept(listener, NULL, NULL);
        if (sock < 0 || open_socks == CONNECTIONS)
            fail("accept");
        int is_parent = !strcmp(moment, "parent"), is_exec = !strcmp(moment, "exec");
        if (is_parent || is_exec || !strcmp(moment, "child")) {
            serve_in_child(sock, listener, words[0], !is_parent, is_exec);
            close(sock);
            if (is_parent) {
                /* The child has its connection then. */
                usleep(50000);
                close_all(kept, used);
            }
            continue;
        }
        if (!strcmp(moment, "threads")) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, serve_in_thread, (void *)(long)sock) != 0)
                fail("pthread_create");
            kept[used++] = sock;
            usleep(10000);
            close_all(kept, used);
            continue;
        }
        socks[open_socks++] = sock;
        if (!strcmp(moment, "accepted")) {
            int all[2 * CONNECTIONS + FILES + 2];
            memcpy(all, kept, (size_t)used * sizeof *all);
            memcpy(all + used, socks, (size_t)open_socks * sizeof *all);
            close_all(all, used + open_socks);
            if (file < 0)
                used = take_numbers(kept, used);
        }
    }
}
