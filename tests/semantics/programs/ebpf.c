/* SO_ATTACH_REUSEPORT_EBPF: a program of the kind SK_REUSEPORT chooses the socket of a group by
 * maps of sockets and of numbers; sockets of one process, of forked children, over IPv6. */
#include "t.h"
#include <linux/bpf.h>
#include <stddef.h>
#include <sys/syscall.h>

#define COUNT 3
#ifndef SO_ATTACH_REUSEPORT_EBPF
#define SO_ATTACH_REUSEPORT_EBPF 52
#endif
#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif

#define OP(code, dst, src, off, imm) ((struct bpf_insn){code, dst, src, off, imm})
#define MOV(dst, src) OP(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0)
#define SET(dst, imm) OP(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm)
#define ADD(dst, imm) OP(BPF_ALU64 | BPF_ADD | BPF_K, dst, 0, 0, imm)
#define LOAD(size, dst, src, off) OP(BPF_LDX | BPF_MEM | size, dst, src, off, 0)
#define STORE(size, dst, src, off) OP(BPF_STX | BPF_MEM | size, dst, src, off, 0)
#define ZERO(size, dst, off) OP(BPF_ST | BPF_MEM | size, dst, 0, off, 0)
#define MAP(dst, fd) OP(BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_FD, 0, fd), OP(0, 0, 0, 0, 0)
#define CALL(number) OP(BPF_JMP | BPF_CALL, 0, 0, 0, number)
#define END OP(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define RETURN(value) SET(0, value), END

static long bpf(int command, union bpf_attr *attr) {
    return syscall(SYS_bpf, command, attr, sizeof *attr);
}

static int map(int type, int key_size, int value_size, int entries) {
    union bpf_attr attr = {
        .map_type = type, .key_size = key_size, .value_size = value_size, .max_entries = entries};
    return bpf(BPF_MAP_CREATE, &attr);
}

static int put(int map, const void *key, const void *value, int flags) {
    union bpf_attr attr = {
        .map_fd = map, .key = (uintptr_t)key, .value = (uintptr_t)value, .flags = flags};
    return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

static int drop(int map, const void *key) {
    union bpf_attr attr = {.map_fd = map, .key = (uintptr_t)key};
    return bpf(BPF_MAP_DELETE_ELEM, &attr);
}

static int load(int type, struct bpf_insn *code, int count) {
    union bpf_attr attr = {.prog_type = type,
                           .insns = (uintptr_t)code,
                           .insn_cnt = count,
                           .license = (uintptr_t) "GPL"};
    int fd = bpf(BPF_PROG_LOAD, &attr);
    memset(code, 0xff, count * sizeof *code);
    return fd;
}

/* The first byte of the payload, a digit, is the index of a socket. */
static int by_digit(int sockets) {
    struct bpf_insn code[] = {
        MOV(6, 1),
        LOAD(BPF_DW, 2, 1, offsetof(struct sk_reuseport_md, data)),
        LOAD(BPF_DW, 3, 1, offsetof(struct sk_reuseport_md, data_end)),
        MOV(4, 2),
        ADD(4, 9),
        OP(BPF_JMP | BPF_JLE | BPF_X, 4, 3, 2, 0),
        RETURN(SK_PASS),
        LOAD(BPF_B, 5, 2, 8),
        ADD(5, -'0'),
        STORE(BPF_W, 10, 5, -4),
        MAP(2, sockets),
        MOV(3, 10),
        ADD(3, -4),
        SET(4, 0),
        CALL(BPF_FUNC_sk_select_reuseport),
        RETURN(SK_PASS),
    };
    return load(BPF_PROG_TYPE_SK_REUSEPORT, code, sizeof code / sizeof *code);
}

/* The first byte is the index of a number, which is that of a socket; 9 drops. */
static int by_number(int numbers, int sockets) {
    struct bpf_insn code[] = {
        MOV(6, 1),
        SET(2, 8),
        MOV(3, 10),
        ADD(3, -4),
        ZERO(BPF_W, 10, -4),
        SET(4, 1),
        CALL(BPF_FUNC_skb_load_bytes),
        OP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0),
        RETURN(SK_PASS),
        LOAD(BPF_W, 5, 10, -4),
        ADD(5, -'0'),
        STORE(BPF_W, 10, 5, -4),
        MAP(1, numbers),
        MOV(2, 10),
        ADD(2, -4),
        CALL(BPF_FUNC_map_lookup_elem),
        OP(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 2, 0),
        RETURN(SK_PASS),
        LOAD(BPF_W, 5, 0, 0),
        OP(BPF_JMP | BPF_JNE | BPF_K, 5, 0, 2, 9),
        RETURN(SK_DROP),
        STORE(BPF_W, 10, 5, -4),
        MOV(1, 6),
        MAP(2, sockets),
        MOV(3, 10),
        ADD(3, -4),
        SET(4, 0),
        CALL(BPF_FUNC_sk_select_reuseport),
        RETURN(SK_PASS),
    };
    return load(BPF_PROG_TYPE_SK_REUSEPORT, code, sizeof code / sizeof *code);
}

/* The first eight bytes, in network order, are the key of a socket. */
static int by_name(int sockets) {
    struct bpf_insn code[] = {
        MOV(6, 1),
        SET(2, 8),
        MOV(3, 10),
        ADD(3, -8),
        SET(4, 8),
        CALL(BPF_FUNC_skb_load_bytes),
        OP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0),
        RETURN(SK_PASS),
        LOAD(BPF_DW, 5, 10, -8),
        OP(BPF_ALU | BPF_END | BPF_TO_BE, 5, 0, 0, 64),
        STORE(BPF_DW, 10, 5, -8),
        MOV(1, 6),
        MAP(2, sockets),
        MOV(3, 10),
        ADD(3, -8),
        SET(4, 0),
        CALL(BPF_FUNC_sk_select_reuseport),
        RETURN(SK_PASS),
    };
    return load(BPF_PROG_TYPE_SK_REUSEPORT, code, sizeof code / sizeof *code);
}

/* What the context says of the datagram, and its IP header: any doubt drops it. */
static int by_context(int sockets, int ether, int version, int length) {
    struct bpf_insn code[] = {
        MOV(6, 1),
        LOAD(BPF_W, 2, 1, offsetof(struct sk_reuseport_md, len)),
        OP(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 21, length),
        LOAD(BPF_W, 2, 1, offsetof(struct sk_reuseport_md, eth_protocol)),
        OP(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 19, htons(ether)),
        LOAD(BPF_W, 2, 1, offsetof(struct sk_reuseport_md, ip_protocol)),
        OP(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 17, IPPROTO_UDP),
        LOAD(BPF_W, 2, 1, offsetof(struct sk_reuseport_md, bind_inany)),
        OP(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 15, 0),
        SET(2, 0),
        MOV(3, 10),
        ADD(3, -4),
        SET(4, 1),
        SET(5, BPF_HDR_START_NET),
        CALL(BPF_FUNC_skb_load_bytes_relative),
        OP(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 8, 0),
        LOAD(BPF_B, 2, 10, -4),
        OP(BPF_ALU64 | BPF_RSH | BPF_K, 2, 0, 0, 4),
        OP(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 5, version),
        ZERO(BPF_W, 10, -4),
        MOV(1, 6),
        MAP(2, sockets),
        OP(BPF_JMP | BPF_JA, 0, 0, 2, 0),
        RETURN(SK_DROP),
        MOV(3, 10),
        ADD(3, -4),
        SET(4, 0),
        CALL(BPF_FUNC_sk_select_reuseport),
        RETURN(SK_PASS),
    };
    return load(BPF_PROG_TYPE_SK_REUSEPORT, code, sizeof code / sizeof *code);
}

static int choose(int fd, int program) {
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof program);
}

static struct sockaddr_in6 at6(const char *ip, int port) {
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, ip, &addr.sin6_addr);
    return addr;
}

static int grouped(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (bind_to(fd, own_ip(), port) < 0) NOTE("bind: %s", name_of(errno));
    return fd;
}

static int grouped6(int port) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in6 own = at6(getenv("OWN_IP6"), port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (bind(fd, (void *)&own, sizeof own) < 0) NOTE("bind: %s", name_of(errno));
    return fd;
}

/* Which of the sockets gets it. */
static int taker(int *fds) {
    struct pollfd all[COUNT];
    char byte;
    for (int i = 0; i < COUNT; i++) all[i] = (struct pollfd){fds[i], POLLIN};
    if (poll(all, COUNT, 1000) < 1) return -1;
    for (int i = 0; i < COUNT; i++)
        if (all[i].revents & POLLIN && recv(fds[i], &byte, 1, 0) == 1) return i;
    return -2;
}

static void send_to(int from, const char *text, int len, int port) {
    struct sockaddr_in to = at(own_ip(), port);
    sendto(from, text, len, 0, (void *)&to, sizeof to);
}

static void digits(const char *all, int *fds, int port) {
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    for (; *all; all++) {
        send_to(out, all, 1, port);
        NOTE("%c to %d", *all, taker(fds));
    }
    close(out);
}

/* As long as sockets have not been waited for they may not be members yet. */
static void begin(int *fds) {
    struct pollfd all[COUNT];
    for (int i = 0; i < COUNT; i++) all[i] = (struct pollfd){fds[i], POLLIN};
    poll(all, COUNT, 0);
}

static void in_one_process(void) {
    int fds[COUNT], none = 0;
    for (int i = 0; i < COUNT; i++) fds[i] = grouped(7930);
    int sockets = OPEN(map(BPF_MAP_TYPE_REUSEPORT_SOCKARRAY, 4, 8, COUNT));
    int program = OPEN(by_digit(sockets));
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t fd = fds[i];
        SAY(put(sockets, &i, &fd, BPF_NOEXIST));
    }
    SAY(choose(fds[1], program));
    close(program);
    begin(fds);
    digits("0120212", fds, 7930);
    NOTE("from another machine");
    for (const char *c = "2010"; *c; c++) {
        struct sockaddr_in echo = at(peer_ip(), 7001);
        sendto(fds[0], c, 1, 0, (void *)&echo, sizeof echo);
        NOTE("%c to %d", *c, taker(fds));
    }
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    send_to(out, "7", 1, 7930);
    NOTE("none of that number: somebody %d", taker(fds) >= 0);
    send_to(out, "", 0, 7930);
    NOTE("nothing to read: somebody %d", taker(fds) >= -2);
    NOTE("changed while it is in use");
    uint32_t first = 0, last = 2;
    uint64_t fd = fds[2];
    SAY(drop(sockets, &first));
    SAY(put(sockets, &first, &fd, BPF_NOEXIST));
    SAY(drop(sockets, &last));
    SAY(drop(sockets, &last));
    SAY(put(sockets, &first, &fd, BPF_ANY));
    digits("00", fds, 7930);
    NOTE("closed");
    close(fds[1]);
    fds[1] = -1;
    for (int i = 0; i < 4; i++) {
        send_to(out, "1", 1, 7930);
        NOTE("somebody %d", taker(fds) >= 0);
    }
    SAY(setsockopt(fds[0], SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none, sizeof none));
    SAY(setsockopt(fds[0], SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none, sizeof none));
    send_to(out, "0", 1, 7930);
    NOTE("by the hash: somebody %d", taker(fds) >= 0);
    close(fds[0]), close(fds[2]), close(out), close(sockets);
}

static void numbers(void) {
    int fds[COUNT];
    uint32_t meant[] = {2, 0, 1, 9};
    for (int i = 0; i < COUNT; i++) fds[i] = grouped(7931);
    int sockets = map(BPF_MAP_TYPE_REUSEPORT_SOCKARRAY, 4, 8, COUNT);
    int table = OPEN(map(BPF_MAP_TYPE_ARRAY, 4, 4, 4));
    for (uint32_t i = 0; i < 4; i++) put(table, &i, &meant[i], BPF_ANY);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t fd = fds[i];
        put(sockets, &i, &fd, BPF_ANY);
    }
    SAY(choose(fds[0], by_number(table, sockets)));
    begin(fds);
    digits("0121", fds, 7931);
    uint32_t one = 1, two = 2;
    SAY(put(table, &one, &two, BPF_ANY));
    digits("11", fds, 7931);
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    struct timeval patience = {1, 0};
    char byte;
    connect_to(out, own_ip(), 7931);
    setsockopt(out, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    SAY(send(out, "3", 1, 0));
    SAY(recv(out, &byte, 1, 0));
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(sockets), close(table), close(out);
}

static void contexts(void) {
    int fds[COUNT];
    uint32_t first = 0;
    for (int i = 0; i < COUNT; i++) fds[i] = grouped(7932);
    int sockets = map(BPF_MAP_TYPE_SOCKMAP, 4, 8, COUNT);
    uint64_t fd = fds[1];
    SAY(put(sockets, &first, &fd, BPF_ANY));
    SAY(choose(fds[0], by_context(sockets, 0x800, 4, 8 + 1)));
    begin(fds);
    digits("xyz", fds, 7932);
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(sockets);
}

static void over_ipv6(void) {
    int fds[COUNT];
    uint32_t first = 0;
    for (int i = 0; i < COUNT; i++) fds[i] = grouped6(7933);
    int sockets = map(BPF_MAP_TYPE_SOCKMAP, 4, 8, COUNT);
    uint64_t fd = fds[2];
    SAY(put(sockets, &first, &fd, BPF_ANY));
    SAY(choose(fds[0], by_context(sockets, 0x86dd, 6, 8 + 5)));
    begin(fds);
    int out = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 to = at6(getenv("OWN_IP6"), 7933);
    for (int i = 0; i < 3; i++) {
        sendto(out, "hello", 5, 0, (void *)&to, sizeof to);
        NOTE("over IPv6 to %d", taker(fds));
    }
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(sockets), close(out);
}

/* Answers with its number, until it is told to end. */
static void serve(int fd, int number, int ready) {
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    char text[16], answer[] = {'a' + number};
    recv(fd, text, 1, MSG_DONTWAIT);
    write(ready, "r", 1);
    while (recvfrom(fd, text, sizeof text, 0, (void *)&from, &len) > 0 && text[8] != '.')
        sendto(fd, answer, 1, 0, (void *)&from, len);
}

static void ask(uint64_t *names, const char *which, char last) {
    for (; *which; which++) {
        int out = socket(AF_INET, SOCK_DGRAM, 0);
        struct timeval patience = {2, 0};
        char text[9], answer = '-';
        uint64_t name = htobe64(names[*which - '0']);
        setsockopt(out, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        memcpy(text, &name, 8);
        text[8] = last;
        send_to(out, text, sizeof text, 7934);
        if (last != '.') {
            recv(out, &answer, 1, 0);
            NOTE("%c by %c", *which, answer);
        }
        close(out);
    }
}

/* As nginx does for QUIC: the parent loads the program, and names sockets by their cookies; each
 * child has one. */
static void in_children(void) {
    int fds[COUNT], ready[2], children[COUNT];
    uint64_t names[COUNT];
    char byte;
    pipe(ready);
    for (int i = 0; i < COUNT; i++) fds[i] = grouped(7934);
    int sockets = OPEN(map(BPF_MAP_TYPE_SOCKHASH, 8, 8, COUNT * 4));
    int program = by_name(sockets);
    SAY(choose(fds[0], program));
    close(program);
    for (int i = 0; i < COUNT; i++) {
        socklen_t len = sizeof names[i];
        getsockopt(fds[i], SOL_SOCKET, SO_COOKIE, &names[i], &len);
        uint64_t fd = fds[i];
        SAY(put(sockets, &names[i], &fd, BPF_ANY));
    }
    for (int i = 0; i < COUNT; i++) {
        if ((children[i] = fork()) == 0) {
            for (int k = 0; k < COUNT; k++)
                if (k != i) close(fds[k]);
            serve(fds[i], i, ready[1]);
            _exit(0);
        }
    }
    for (int i = 0; i < COUNT; i++) read(ready[0], &byte, 1);
    ask(names, "0122100221", '?');
    NOTE("the second is killed, and another one takes its place");
    kill(children[1], SIGKILL), waitpid(children[1], 0, 0);
    if (fork() == 0) {
        serve(fds[1], 7, ready[1]);
        _exit(0);
    }
    read(ready[0], &byte, 1);
    ask(names, "012", '?');
    ask(names, "012", '.');
    int ended = 0;
    while (wait(0) > 0) ended++;
    NOTE("%d children ended", ended);
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(ready[0]), close(ready[1]), close(sockets);
}

static void refused(void) {
    struct bpf_insn pass[] = {RETURN(SK_PASS)}, packets[] = {RETURN(1)};
    int pipes[2], alone = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);
    int fd = grouped(7935), on = 1;
    int program = load(BPF_PROG_TYPE_SK_REUSEPORT, pass, 2);
    int other = load(BPF_PROG_TYPE_XDP, packets, 2);
    pipe(pipes);
    SAY(choose(fd, -1));
    SAY(choose(fd, 999));
    SAY(choose(fd, pipes[0]));
    SAY(choose(fd, fd));
    SAY(choose(fd, other));
    SAY(choose(alone, program));
    SAY(setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, 2));
    SAY(setsockopt(alone, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    SAY(choose(alone, program));
    SAY(choose(fd, program));
    SAY(choose(fd, program));
    close(alone), close(stream), close(fd), close(pipes[0]), close(pipes[1]);
    close(program), close(other);
}

int main(void) {
    in_one_process();
    numbers();
    contexts();
    over_ipv6();
    in_children();
    refused();
    return 0;
}
