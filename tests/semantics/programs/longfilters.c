/* SO_ATTACH_FILTER of so many instructions that little or nothing finds room beside them, of a UDP
 * socket that another program gets, before or after the filter is set. */
#include "t.h"
#include <linux/filter.h>

enum { SOCKET = 50, LEN = BPF_MAXINSNS };
static char self[256];
static struct sock_filter code[LEN];

/* Drops what begins with an x, behind the header of UDP. */
static int attach(int fd, int len) {
    struct sock_filter last[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'x', 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, -1)};
    struct sock_fprog filter = {len, code};
    for (int i = 0; i < len; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1);
    memcpy(code + len - 4, last, sizeof last);
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

static void hear(int fd, int port) {
    char got[16];
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    struct timeval wait = {1, 0};
    struct sockaddr_in own = at(own_ip(), port);
    socklen_t len = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    bind_to(other, own_ip(), 0);
    sendto(other, "xa", 2, 0, (void *)&own, sizeof own);
    sendto(other, "bcd", 3, 0, (void *)&own, sizeof own);
    SAY(recv(fd, got, sizeof got, 0));
    SAY(recv(fd, got, sizeof got, MSG_DONTWAIT));
    SAY(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, 0, &len));
    NOTE("%u instructions", len);
    close(other);
}

static void passes(int len, int is_late, int receives, int port) {
    int pair[2], fd = socket(AF_INET, SOCK_DGRAM, 0);
    NOTE("%d instructions, set %s, the %s hears", len, is_late ? "later" : "before",
         receives ? "receiver" : "sender");
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    bind_to(fd, own_ip(), port);
    if (!is_late) SAY(attach(fd, len));
    send_fd(pair[0], fd);
    if (is_late) SAY(attach(fd, len));
    if (!receives) return hear(fd, port), (void)(close(fd), close(pair[0]), close(pair[1]));
    if (!fork()) close(fd), fd = receive_fd(pair[1]), hear(fd, port), _exit(0);
    close(fd), close(pair[0]), close(pair[1]), wait(0);
}

static void starts(int len, int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    NOTE("%d instructions, exec", len);
    bind_to(fd, own_ip(), port);
    SAY(attach(fd, len));
    snprintf(text, sizeof text, "%d", port);
    if (!fork()) dup2(fd, SOCKET), close(fd), execl(self, self, text, NULL);
    close(fd), wait(0);
}

int main(int argc, char **argv) {
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    if (argc > 1) return hear(SOCKET, atoi(argv[1])), 0;
    int lens[] = {100, 4000, LEN}, port = 8870;
    for (int i = 0; i < 3; i++) {
        for (int way = 0; way < 4; way++) passes(lens[i], way & 1, way & 2, port++);
        starts(lens[i], port++);
    }
}
