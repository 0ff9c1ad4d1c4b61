/* What fstat tells of sockets. */
#include "t.h"

static unsigned long inode(int fd) {
    struct stat status = {0};
    if (fstat(fd, &status)) NOTE("fstat: %s", name_of(errno));
    if ((status.st_mode & ~07777) != S_IFSOCK) NOTE("mode %o", status.st_mode);
    return status.st_ino;
}

int main(void) {
    int kinds[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int i = 0; i < 2; i++) {
        int fd[3];
        unsigned long of[3];
        for (int j = 0; j < 3; j++) fd[j] = socket(AF_INET, kinds[i], 0), of[j] = inode(fd[j]);
        NOTE("each its own: %d", of[0] != of[1] && of[1] != of[2] && of[0] != of[2]);
        SAY(bind_to(fd[0], own_ip(), 8374));
        NOTE("the same when bound: %d", inode(fd[0]) == of[0]);
        if (kinds[i] == SOCK_STREAM) {
            SAY(listen(fd[0], 5));
            NOTE("the same when it listens: %d", inode(fd[0]) == of[0]);
        }
        SAY(connect_to(fd[1], peer_ip(), 7001));
        NOTE("the same when connected: %d", inode(fd[1]) == of[1]);
        int copy = dup(fd[1]);
        NOTE("a copy's: %d", inode(copy) == of[1]);
        close(copy);
        for (int j = 0; j < 3; j++) close(fd[j]);
    }
    int server = listener(8375), control = ask_peer(8375, "hello");
    int got = accept(server, 0, 0);
    NOTE("an accepted one's: %d", inode(got) != inode(server) && inode(got) != inode(control));
    struct stat status;
    close(got);
    SAY(fstat(got, &status));
}
