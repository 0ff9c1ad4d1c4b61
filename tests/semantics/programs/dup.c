/* Descriptors: dup, flags, close-on-exec, sharing. */
#include "t.h"

int main(int argc, char **argv) {
    if (argc > 1) {
        /* The program after the exec. */
        int kept = atoi(argv[1]), closed = atoi(argv[2]);
        NOTE("kept: %s, closed: %s", fcntl(kept, F_GETFD) < 0 ? name_of(errno) : "open",
             fcntl(closed, F_GETFD) < 0 ? name_of(errno) : "open");
        return 0;
    }
    char buf[64];
    int fd = tcp(7001);
    SAY(fcntl(fd, F_GETFD));
    SAY(fcntl(fd, F_SETFD, FD_CLOEXEC));
    SAY(fcntl(fd, F_GETFD));
    SAY((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    SAY(fcntl(fd, F_GETFL) & O_NONBLOCK);
    int second = OPEN(dup(fd));
    SAY(fcntl(second, F_GETFD));
    SAY(fcntl(second, F_SETFL, O_RDWR | O_NONBLOCK));
    SAY((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    SAY(read(fd, buf, 1));
    int off = 0;
    SAY(ioctl(fd, FIONBIO, &off));
    SAY(fcntl(second, F_GETFL) & O_NONBLOCK);
    SAY(write(second, "abc", 3));
    SAY(close(second));
    SAY(read(fd, buf, 64));
    SAY(dup2(fd, 50));
    SAY(dup2(fd, fd) == fd);
    SAY(dup3(fd, fd, 0));
    SAY(dup3(fd, 51, O_CLOEXEC));
    SAY(fcntl(51, F_GETFD));
    SAY(fcntl(fd, F_DUPFD, 60));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 60));
    SAY(close(fd));
    SAY(write(50, "def", 3));
    readable(60);
    SAY(read(60, buf, 64));
    SAY(dup2(0, 50));
    SAY(write(51, "g", 1));
    SAY(dup(999));
    SAY(dup2(999, 51));
    SAY(dup2(51, -1));
    SAY(close_range(60, 61, 0));
    SAY(read(60, buf, 1));
    readable(51);
    SAY(read(51, buf, 64));
    SAY(close(51));
    SAY(read(51, buf, 1));

    fd = OPEN(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    SAY(fcntl(fd, F_GETFD));
    SAY((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    int kept = socket(AF_INET, SOCK_STREAM, 0);
    char one[16], two[16];
    sprintf(one, "%d", kept), sprintf(two, "%d", fd);
    fflush(stdout);
    if (!fork()) {
        execl("/proc/self/exe", argv[0], one, two, NULL);
        _exit(1);
    }
    int status;
    wait(&status);
    SAY(WEXITSTATUS(status));
    SAY(close(fd));
    SAY(close(kept));

    /* Numbers are the lowest free ones. */
    int first = socket(AF_INET, SOCK_STREAM, 0), next = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(next == first + 1);
    close(first);
    int again = socket(AF_INET, SOCK_STREAM, 0);
    SAY(again == first);
    int file = open("/dev/null", O_RDONLY);
    SAY(file == next + 1);
}
