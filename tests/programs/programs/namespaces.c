/* Sockets of a program that enters another network namespace: namespaces HOW OTHER PORT WORDS...

   A listener belongs to the namespace in which its socket was made. Each one tells its callers in
   which that was to be: "home" or "other". OTHER is the file of the other namespace, PORT the first
   port.

   threads: one thread enters the other namespace and comes back.
   first:   as threads, but the program has not used a socket before.
   family:  a child enters the other namespace, starts a program and becomes one (program).
   own:     children enter namespaces of their own, by unshare and clone. WORDS: an address. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char **words;
static int first_port, home;

static int checked(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static void enter(int namespace, int by_number) {
    if (by_number)
        checked(syscall(SYS_setns, namespace, CLONE_NEWNET), "setns");
    else
        checked(setns(namespace, 0), "setns");
}

static void enter_other(void) {
    int other = checked(open(words[2], O_RDONLY | O_CLOEXEC), words[2]);
    enter(other, 0);
    close(other);
}

static int stream(void) {
    return checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
}

static int bound(int sock, const char *ip, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &at.sin_addr);
    return bind(sock, (struct sockaddr *)&at, sizeof at);
}

struct Served {
    int sock;
    const char *says;
};

static void *serve(void *given) {
    struct Served *it = given;
    for (;;) {
        int caller = accept(it->sock, 0, 0);
        if (caller < 0) {
            perror("accept");
            return 0;
        }
        if (write(caller, it->says, strlen(it->says)) < 0)
            perror("write");
        close(caller);
    }
}

static void start(void *(*run)(void *), void *with) {
    pthread_t thread;
    if (pthread_create(&thread, 0, run, with) != 0)
        exit(1);
    pthread_detach(thread);
}

static void listen_with(int sock, int number, const char *says) {
    struct Served *it = malloc(sizeof *it);
    *it = (struct Served){sock, says};
    checked(bound(sock, "0.0.0.0", first_port + number), "bind");
    checked(listen(sock, 8), "listen");
    start(serve, it);
}

static void listen_on(int number, const char *says) {
    listen_with(stream(), number, says);
}

/* Lists of interfaces as this thread sees them, without those of IPv6. */
static void list(const char *where) {
    struct ifaddrs *all, *it;
    char text[64], line[512] = "";
    checked(getifaddrs(&all), "getifaddrs");
    for (it = all; it; it = it->ifa_next)
        if (it->ifa_addr && it->ifa_addr->sa_family == AF_INET) {
            struct sockaddr_in *at = (struct sockaddr_in *)it->ifa_addr;
            inet_ntop(AF_INET, &at->sin_addr, text, sizeof text);
            strcat(strcat(line, " "), text);
        }
    freeifaddrs(all);
    int sock = checked(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    static struct ifreq found[32];
    struct ifconf some = {.ifc_len = sizeof found, .ifc_req = found};
    checked(ioctl(sock, SIOCGIFCONF, &some), "SIOCGIFCONF");
    strcat(line, " requested");
    for (int at = 0; at < some.ifc_len / (int)sizeof *found; at++) {
        struct sockaddr_in *got = (struct sockaddr_in *)&found[at].ifr_addr;
        inet_ntop(AF_INET, &got->sin_addr, text, sizeof text);
        strcat(strcat(line, " "), text);
    }
    close(sock);
    printf("list %s:%s\n", where, line);
}

static void ask_about(const char *name, int sock, int by_number) {
    struct ifreq about = {0};
    char text[64];
    strcpy(about.ifr_name, name);
    int result = by_number ? syscall(SYS_ioctl, sock, SIOCGIFADDR, &about)
                           : ioctl(sock, SIOCGIFADDR, &about);
    struct sockaddr_in *got = (struct sockaddr_in *)&about.ifr_addr;
    inet_ntop(AF_INET, &got->sin_addr, text, sizeof text);
    printf(" %s %s", name, result == 0 ? text : strerror(errno));
}

/* What a socket tells of the interfaces of its own namespace. */
static void ask(const char *where, int sock) {
    char text[64];
    for (int by_number = 0; by_number < 2; by_number++) {
        static struct ifreq found[32];
        struct ifconf some = {.ifc_len = sizeof found, .ifc_req = found};
        checked(by_number ? (int)syscall(SYS_ioctl, sock, SIOCGIFCONF, &some)
                          : ioctl(sock, SIOCGIFCONF, &some), "SIOCGIFCONF");
        printf("%s%s:", where, by_number ? " by number" : "");
        for (int at = 0; at < some.ifc_len / (int)sizeof *found; at++) {
            struct sockaddr_in *got = (struct sockaddr_in *)&found[at].ifr_addr;
            inet_ntop(AF_INET, &got->sin_addr, text, sizeof text);
            printf(" %s=%s", found[at].ifr_name, text);
        }
        ask_about("eth1", sock, by_number);
        ask_about("sham", sock, by_number);
        printf("\n");
    }
}

/* Who answers at the peer's address. */
static void call(const char *where) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9000)};
    char text[64] = "";
    inet_pton(AF_INET, "10.77.0.1", &to.sin_addr);
    int sock = stream();
    if (connect(sock, (struct sockaddr *)&to, sizeof to) < 0)
        strcpy(text, strerror(errno));
    else if (read(sock, text, sizeof text - 1) < 0)
        perror("read");
    close(sock);
    printf("call %s: %s\n", where, text);
    to.sin_port = htons(9001);
    sock = checked(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    struct timeval limit = {3, 0};
    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    memset(text, 0, sizeof text);
    if (sendto(sock, "who", 3, 0, (struct sockaddr *)&to, sizeof to) < 0 ||
        recv(sock, text, sizeof text - 1, 0) < 0)
        strcpy(text, strerror(errno));
    close(sock);
    printf("ask %s: %s\n", where, text);
}

static int early, taken, unused_socket;

static void *in_other_by_its_maker(void *unused) {
    listen_on(1, "other");
    return unused;
}

static void *visitor(void *unused) {
    static struct Served at_home;
    enter_other();
    listen_on(0, "other");
    start(in_other_by_its_maker, 0);
    listen_with(early, 4, "home");
    at_home = (struct Served){taken, "home"};
    start(serve, &at_home);
    list("other");
    call("other");
    ask("socket of home", unused_socket);
    int made_here = stream();
    ask("socket of other", made_here);
    enter(home, 1);
    listen_with(made_here, 2, "other");
    listen_on(3, "home");
    list("returned");
    call("returned");
    return unused;
}

static void threads(int is_first) {
    pthread_t thread;
    early = stream();
    taken = stream();
    unused_socket = checked(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    checked(bound(taken, "0.0.0.0", first_port + 6), "bind");
    checked(listen(taken, 8), "listen");
    if (!is_first) {
        listen_on(0, "home");
        call("home");
        list("home");
    }
    pthread_create(&thread, 0, visitor, 0);
    pthread_join(thread, 0);
    if (is_first)
        listen_on(0, "home");
    listen_on(5, "home");
}

static void become(char *number, int listener, int fresh, int spawns) {
    extern char **environ;
    char numbers[3][16];
    sprintf(numbers[0], "%d", home);
    sprintf(numbers[1], "%d", listener);
    sprintf(numbers[2], "%d", fresh);
    char *argv[] = {words[0], "program", words[2], words[3], number,
                    numbers[0], numbers[1], numbers[2], 0};
    pid_t pid;
    if (!spawns)
        execv(words[0], argv);
    else if (posix_spawn(&pid, words[0], 0, 0, argv, environ) == 0)
        return;
    perror("the program");
    exit(1);
}

/* A new program in the other namespace: WORDS are the number of its first port, and of the files of
   the first namespace, of a listener and of an unused socket, both of there. */
static void program(void) {
    int number = atoi(words[4]);
    static struct Served at_home;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    home = atoi(words[5]);
    if (number == 1) {
        list("new program");
        call("new program");
    }
    listen_on(number, "other");
    enter(home, 0);
    listen_on(number + 1, "home");
    at_home = (struct Served){atoi(words[6]), "home"};
    if (at_home.sock >= 0)
        start(serve, &at_home);
    if (atoi(words[7]) >= 0)
        listen_with(atoi(words[7]), number + 4, "home");
}

/* Sends an unused socket of the other namespace, or receives it. */
static int pass(int by, int sock) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } room = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
    memcpy(CMSG_DATA(&room.header), &sock, sizeof sock);
    checked(sock >= 0 ? sendmsg(by, &message, 0) : recvmsg(by, &message, 0), "pass");
    memcpy(&sock, CMSG_DATA(&room.header), sizeof sock);
    return sock;
}

static void family(void) {
    int kept = checked(socket(AF_INET, SOCK_STREAM, 0), "socket"), ways[2];
    int fresh = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
    checked(socketpair(AF_UNIX, SOCK_STREAM, 0, ways), "socketpair");
    checked(bound(kept, "0.0.0.0", first_port + 6), "bind");
    checked(listen(kept, 8), "listen");
    listen_on(0, "home");
    fflush(stdout);
    if (checked(fork(), "fork") != 0) {
        listen_with(pass(ways[0], -1), 8, "other");
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enter_other();
    listen_on(5, "other");
    pass(ways[1], stream());
    become("1", -1, -1, 1);
    become("3", kept, fresh, 0);
}

/* In a namespace of its own there is not even the loopback's address. */
static int alone(void *where) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(first_port)};
    inet_pton(AF_INET, words[4], &to.sin_addr);
    list(where);
    int sock = stream(), result = connect(sock, (struct sockaddr *)&to, sizeof to);
    printf("connect %s: %s\n", (char *)where, result == 0 ? "done" : strerror(errno));
    printf("index %s: %d\n", (char *)where, if_nametoindex("eth1") != 0);
    fflush(stdout);
    _exit(0);
}

static void own(void) {
    static char stack[1 << 18] __attribute__((aligned(16)));
    listen_on(0, "home");
    list("home");
    for (int how = 0; how < 4; how++) {
        fflush(stdout);
        pid_t child = how == 2 ? syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0)
                    : how == 3 ? clone(alone, stack + sizeof stack, CLONE_NEWNET | SIGCHLD, "clone")
                               : fork();
        if (checked(child, "child") == 0) {
            if (how == 0)
                checked(unshare(CLONE_NEWNET), "unshare");
            if (how == 1)
                checked(syscall(SYS_unshare, CLONE_NEWNET), "unshare");
            alone(how == 0 ? "unshare" : how == 1 ? "unshare by number" : "clone by number");
        }
        checked(waitpid(child, 0, 0), "waitpid");
    }
    listen_on(5, "home");
}

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    words = arguments;
    first_port = atoi(words[3]);
    home = checked(open("/proc/self/ns/net", O_RDONLY), "ns/net");
    if (strcmp(words[1], "family") == 0)
        family();
    else if (strcmp(words[1], "program") == 0)
        program();
    else if (strcmp(words[1], "own") == 0)
        own();
    else
        threads(strcmp(words[1], "first") == 0);
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}
