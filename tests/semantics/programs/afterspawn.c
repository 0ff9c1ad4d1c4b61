/* A socket that a program has made before it started another one, and that it binds, listens on or
 * reads from only then: the other program does not change how it blocks. */
#include "t.h"
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void start_another(int how) {
    char *argv[] = {"true", 0};
    pid_t pid;
    FILE *out;
    switch (how) {
    case 0: system("true"); break;
    case 1:
        if ((out = popen("true", "r"))) pclose(out);
        break;
    default:
        if (posix_spawnp(&pid, "true", 0, 0, argv, environ) == 0) waitpid(pid, 0, 0);
    }
}

static void *connects(void *port) {
    struct sockaddr_in to = at(own_ip(), (int)(long)port);
    usleep(100000);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&to, sizeof to) < 0) NOTE("connect: %s", strerror(errno));
    return (void *)(long)fd;
}

static void listens(int how, int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t client;
    void *other;
    start_another(how);
    NOTE("bind %d", bind_to(fd, "0.0.0.0", port));
    NOTE("listen %d", listen(fd, 8));
    pthread_create(&client, 0, connects, (void *)(long)port);
    alarm(5);
    int taken = accept(fd, 0, 0);
    alarm(0);
    NOTE("blocking: taken %d", taken >= 0);
    pthread_join(client, &other);
    close((int)(long)other), close(taken);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    alarm(5);
    NOTE("not blocking: %d %s", accept(fd, 0, 0), strerror(errno));
    alarm(0);
    close(fd);
}

static void receives(int how, int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at(own_ip(), port);
    char text[8];
    start_another(how);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    NOTE("bind %d", bind_to(fd, "0.0.0.0", port));
    alarm(5);
    NOTE("not blocking: %d %s", (int)recv(fd, text, sizeof text, 0), strerror(errno));
    fcntl(fd, F_SETFL, 0);
    sendto(out, "abc", 3, 0, (void *)&to, sizeof to);
    NOTE("blocking: %d", (int)recv(fd, text, sizeof text, 0));
    sendto(out, "abcd", 4, 0, (void *)&to, sizeof to);
    NOTE("again: %d", (int)recv(fd, text, sizeof text, 0));
    alarm(0);
    close(fd), close(out);
}

/* Bound by its first use alone. */
static void sends(int how) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in echo = at(peer_ip(), 7001);
    char text[8];
    start_another(how);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    sendto(fd, "abc", 3, 0, (void *)&echo, sizeof echo);
    struct pollfd answer = {fd, POLLIN};
    poll(&answer, 1, 2000);
    NOTE("answer %d", (int)recv(fd, text, sizeof text, 0));
    alarm(5);
    NOTE("no more: %d %s", (int)recv(fd, text, sizeof text, 0), strerror(errno));
    alarm(0);
    close(fd);
}

/* What becomes the kernel's has the mode that was set after the start. */
static void on_loopback(int how, int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    start_another(how);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    NOTE("bind %d", bind_to(fd, "127.0.0.1", port));
    alarm(5);
    NOTE("loopback: %d %s", (int)recv(fd, text, sizeof text, 0), strerror(errno));
    alarm(0);
    close(fd);
}

/* A daemon binds what its parent has made. */
static void in_child(int how, int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    start_another(how);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        NOTE("bind %d", bind_to(fd, "0.0.0.0", port));
        alarm(5);
        NOTE("in the child: %d %s", (int)recv(fd, text, sizeof text, 0), strerror(errno));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    close(fd);
}

/* The start of another program permits no address that is not the machine's. */
static void on_strange(int how) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    start_another(how);
    int bound = bind_to(fd, "192.0.2.77", 9480);
    NOTE("of nobody: %d %s", bound, bound ? strerror(errno) : "");
    close(fd);
}

int main(void) {
    for (int how = 0; how < 3; how++) {
        listens(how, 9490 + how);
        receives(how, 9493 + how);
        sends(how);
        on_loopback(how, 9496 + how);
        in_child(how, 9481 + how);
        on_strange(how);
    }
    return 0;
}
