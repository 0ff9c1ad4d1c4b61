/* A program for F-Stack's adapter: libc's socket calls, and the library's kqueue and kevent. Echoes
 * on port 7200. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ff_event.h"

struct timespec;
int kqueue(void);
int kevent(int kq, const struct kevent *changes, int nchanges, struct kevent *events, int nevents,
           const struct timespec *timeout);

#define SOCK_FSTACK 0x01000000

int main(void)
{
    struct sockaddr_in address;
    struct kevent change, event;
    char bytes[512];
    int kq = kqueue();
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_FSTACK, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(7200);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0)
        return 1;
    EV_SET(&change, listener, EVFILT_READ, EV_ADD, 0, 0, NULL);
    if (kq < 0 || kevent(kq, &change, 1, NULL, 0, NULL) < 0)
        return 2;
    while (kevent(kq, NULL, 0, &event, 1, NULL) == 1) {
        int fd = (int)event.ident;
        if (fd == listener) {
            int connection = accept(listener, NULL, NULL);
            EV_SET(&change, connection, EVFILT_READ, EV_ADD, 0, 0, NULL);
            kevent(kq, &change, 1, NULL, 0, NULL);
        } else if (event.flags & EV_EOF) {
            close(fd);
        } else {
            ssize_t got = read(fd, bytes, sizeof bytes);
            if (write(fd, bytes, (size_t)got) != got)
                return 3;
        }
    }
    return 4;
}
