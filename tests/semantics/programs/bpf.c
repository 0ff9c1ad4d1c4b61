/* SO_ATTACH_FILTER of datagrams: what a program of classic BPF lets through, and how much of it. */
#include "t.h"
#include <linux/filter.h>

static int attach(int fd, struct sock_filter *code, int count) {
    struct sock_fprog program = {count, code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static int detach(int fd) { return setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, "\0\0\0", 4); }

static int lock(int fd, int on) {
    return setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on);
}

/* The first byte of the payload, behind the header, is `byte`. */
static int begins_with(int fd, char byte) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, byte, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffff),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    int set = attach(fd, code, 4);
    memset(code, 0xff, sizeof code);
    return set;
}

static int keeps(int fd, int bytes) {
    struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, bytes);
    return attach(fd, &code, 1);
}

/* A half word of the header, at `at`, is `value`. */
static int has(int fd, int at, int value) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, at),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffff),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    return attach(fd, code, 4);
}

/* The length that a program sees. */
static int is_long(int fd, int length) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, length, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffff),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    return attach(fd, code, 4);
}

/* Everything that has come. */
static void answers(int fd) {
    char buf[64];
    sleep_ms(80);
    struct pollfd p = {fd, POLLIN, 0};
    NOTE("  ready: %d", poll(&p, 1, 0));
    for (;;) {
        int next = -1;
        ioctl(fd, FIONREAD, &next);
        struct iovec in = {buf, sizeof buf};
        struct msghdr message = {.msg_iov = &in, .msg_iovlen = 1};
        ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
        if (n < 0) {
            NOTE("  %s", name_of(errno));
            return;
        }
        NOTE("  %d: %.*s%s", next, (int)n, buf, message.msg_flags & MSG_TRUNC ? " cut" : "");
    }
}

static void ask(int fd, const char *text) {
    if (send(fd, text, strlen(text), 0) < 0) NOTE("send: %s", name_of(errno));
}

static void all(int fd) {
    ask(fd, "abc"), ask(fd, "xyz"), ask(fd, "adefgh"), ask(fd, ""), answers(fd);
}

static unsigned seed = 1;

static unsigned below(unsigned limit) {
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % limit;
}

/* Somewhere in the ports, the length or the payload, or behind it; not in the checksum. */
static unsigned anywhere(void) { return below(4) ? 8 + below(12) : below(3); }

static int any_program(struct sock_filter *code) {
    static const int operations[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND,
                                     BPF_LSH, BPF_RSH, BPF_NEG, BPF_MOD, BPF_XOR};
    static const int jumps[] = {BPF_JA, BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET};
    static const int sizes[] = {BPF_W, BPF_H, BPF_B};
    int count = 0, middle = 8 + below(16);
    /* What may be read has been written. */
    for (int i = 0; i < 4; i++) code[count++] = (struct sock_filter)BPF_STMT(BPF_ST, i);
    while (count < middle) {
        int operation, by = below(2) ? BPF_X : BPF_K;
        struct sock_filter one;
        switch (below(10)) {
        case 0:
            one = (struct sock_filter)BPF_STMT(BPF_LD | sizes[below(3)] | BPF_ABS, anywhere());
            break;
        case 1: one = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0); break;
        case 2: one = (struct sock_filter)BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 8 + below(12)); break;
        case 3:
            one =
                (struct sock_filter)BPF_STMT((below(2) ? BPF_LD : BPF_LDX) | BPF_IMM, below(70000));
            break;
        case 4:
            one = (struct sock_filter)BPF_STMT((below(2) ? BPF_LD : BPF_LDX) | BPF_MEM, below(4));
            break;
        case 5: one = (struct sock_filter)BPF_STMT(below(2) ? BPF_ST : BPF_STX, below(4)); break;
        case 6:
            one = (struct sock_filter)BPF_STMT(BPF_MISC | (below(2) ? BPF_TAX : BPF_TXA), 0);
            break;
        case 7:
            one =
                (struct sock_filter)BPF_JUMP(BPF_JMP | jumps[below(5)] | by, 0, below(3), below(3));
            one.k = BPF_OP(one.code) == BPF_JA ? below(3) : below(300);
            if (BPF_OP(one.code) == BPF_JA) one.code &= ~BPF_X;
            break;
        case 8:
            code[count++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 7);
            code[count++] = (struct sock_filter)BPF_STMT(BPF_MISC | BPF_TAX, 0);
            one = (struct sock_filter)BPF_STMT(BPF_LD | sizes[below(3)] | BPF_IND, 8 + below(10));
            break;
        default:
            operation = operations[below(11)];
            if (operation == BPF_NEG) by = BPF_K;
            one = (struct sock_filter)BPF_STMT(BPF_ALU | operation | by,
                                               by == BPF_X ? 0 : 1 + below(31));
        }
        code[count++] = one;
    }
    for (int i = 0; i < 3; i++)
        code[count++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 31);
    code[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0);
    return count;
}

/* One datagram for each of many programs; what a socket without one has been sent after it tells
 * that it has come. */
static void at_random(void) {
    struct sockaddr_in to = at(peer_ip(), 7001);
    struct sock_filter code[64];
    char buf[64];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), plain = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(fd, own_ip(), 7166));
    NOTE("at random");
    for (int i = 0; i < 300; i++) {
        int count = any_program(code);
        errno = 0;
        if (attach(fd, code, count)) {
            NOTE("  %d: %s", i, name_of(errno));
            continue;
        }
        for (int j = 0; j < 10; j++) buf[j] = below(256);
        sendto(fd, buf, 10, 0, (void *)&to, sizeof to);
        sendto(plain, "x", 1, 0, (void *)&to, sizeof to);
        recv(plain, buf, 1, 0);
        NOTE("  %d: %ld", i, (long)recv(fd, buf, sizeof buf, MSG_DONTWAIT));
    }
    SAY(close(plain));
    SAY(close(fd));
}

int main(void) {
    at_random();
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(detach(fd));
    SAY(bind_to(fd, own_ip(), 8441)), SAY(connect_to(fd, peer_ip(), 7001));
    NOTE("no filter"), all(fd);
    SAY(begins_with(fd, 'a')), all(fd);
    SAY(begins_with(fd, 'x')), all(fd);
    SAY(keeps(fd, 11)), all(fd);
    SAY(keeps(fd, 4)), all(fd);
    SAY(keeps(fd, 0)), all(fd);
    SAY(has(fd, 0, 7001)), ask(fd, "from"), answers(fd);
    SAY(has(fd, 2, 8441)), ask(fd, "to"), answers(fd);
    SAY(has(fd, 4, 14)), ask(fd, "length"), answers(fd);
    SAY(is_long(fd, 14)), ask(fd, "length"), ask(fd, "other"), answers(fd);
    SAY(detach(fd)), SAY(detach(fd)), all(fd);
    NOTE("what has come is not looked at"), ask(fd, "abc"), ask(fd, "xyz"), sleep_ms(80);
    SAY(begins_with(fd, 'x')), ask(fd, "ade"), ask(fd, "xde"), answers(fd);
    NOTE("a datagram after one that is refused"), ask(fd, "abc");
    struct pollfd p = {fd, POLLIN, 0};
    SAY(poll(&p, 1, 100));
    ask(fd, "xyz"), SAY(poll(&p, 1, 1000)), answers(fd);
    NOTE("locked"), SAY(lock(fd, 1)), SAY(keeps(fd, 4)), SAY(detach(fd)), SAY(lock(fd, 0)), all(fd);
    close(fd);
    NOTE("before it is bound"), fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(begins_with(fd, 'x')), SAY(connect_to(fd, peer_ip(), 7001)), all(fd);
    close(fd);
    struct sock_filter endless = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    NOTE("no programs"), fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(attach(fd, &endless, 1)), SAY(attach(fd, 0, 1)), SAY(attach(fd, &endless, 0)),
        SAY(attach(fd, (void *)8, 1));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &endless, 4));
    NOTE("waiting for the right one"), SAY(begins_with(fd, 'r')),
        SAY(connect_to(fd, peer_ip(), 7001));
    ask(fd, "wrong"), ask(fd, "right");
    char buf[16];
    ssize_t n = SAY(recv(fd, buf, sizeof buf, 0));
    NOTE("%.*s", (int)(n > 0 ? n : 0), buf);
    return 0;
}
