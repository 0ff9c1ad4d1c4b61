/* Two processes that close one connection at the same moment: `shared_close PORT`. It answers the
   byte that a peer sends: after `f` it forks, and parent and child close; after `m` it sends the
   connection to another process, and both close. */

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

/* Both are at the same place once it is even. */
static atomic_ulong *arrived;

static void meet(void) {
    unsigned long both = atomic_fetch_add(arrived, 1) / 2 * 2 + 2;
    while (atomic_load(arrived) < both)
        ;
}

static void give(int way, int sock) {
    char byte = 0, room[CMSG_SPACE(sizeof sock)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof sock);
    memcpy(CMSG_DATA(control), &sock, sizeof sock);
    if (sendmsg(way, &message, 0) != 1)
        exit(3);
}

static int take(int way) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int sock;
    if (recvmsg(way, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == NULL)
        _exit(4);
    memcpy(&sock, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof sock);
    return sock;
}

static void close_together(int sock) {
    meet();
    if (close(sock) != 0)
        _exit(5);
}

static void serve(int sock, int way) {
    char how;
    if (recv(sock, &how, 1, 0) != 1) {
        close(sock);
        return;
    }
    if (send(sock, &how, 1, 0) != 1)
        exit(6);
    if (how == 'm') {
        give(way, sock);
        close_together(sock);
        return;
    }
    pid_t child = fork();
    close_together(sock);
    if (child == 0)
        _exit(0);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        exit(7);
}

int main(int count, char **words) {
    int ways[2], listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((unsigned short)atoi(words[1]))};
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    arrived = mmap(NULL, sizeof *arrived, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (count != 2 || arrived == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, ways) != 0)
        return 2;
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(listener);
        for (;;)
            close_together(take(ways[1]));
    }
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) != 0 || listen(listener, 100) != 0)
        return perror("listen"), 2;
    for (;;) {
        int sock = accept(listener, NULL, NULL);
        if (sock < 0)
            return perror("accept"), 2;
        serve(sock, ways[0]);
    }
}
