/* A connection whose address cannot be told is closed. */
#include "t.h"

static void without_a_name(int server, int port, struct sockaddr_in *addr, socklen_t *len) {
    char buf[32];
    int before = open("/dev/null", O_RDONLY);
    close(before);
    int asked = ask_peer(port, "hello");
    SAY(accept(server, (void *)addr, len));
    int after = open("/dev/null", O_RDONLY);
    NOTE("numbers left over: %d", after - before - 1);
    close(after);
    SAY(read_all(asked, buf, 10));
    /* The peer closes this one when the other has ended. */
    struct pollfd p = {asked, POLLIN, 0};
    SAY(poll(&p, 1, 1000));
    SAY(close(asked));
}

int main(void) {
    struct sockaddr_in addr;
    socklen_t len = -1;
    int server = listener(8340);
    without_a_name(server, 8340, &addr, &len);
    without_a_name(server, 8340, &addr, NULL);
    len = 0;
    int asked = ask_peer(8340, "hello");
    int fd = OPEN(accept(server, (void *)&addr, &len));
    NOTE("%d", (int)len);
    SAY(close(fd));
    SAY(close(asked));
    asked = ask_peer(8340, "hello");
    fd = OPEN(accept(server, NULL, NULL));
    SAY(close(fd));
    SAY(close(asked));
}
