/* select of more descriptors than an fd_set holds, and of as many as there could be. */
#include "t.h"

static struct {
    fd_set set;
    unsigned char behind[16384];
} sets;

static void one(const char *what, int fd, int count) {
    struct timeval second = {1, 0};
    memset(&sets.set, 0, sizeof sets.set), memset(sets.behind, 0xff, sizeof sets.behind);
    FD_SET(fd, &sets.set);
    errno = 0;
    int got = select(count, &sets.set, 0, 0, &second), is_whole = 1;
    for (int i = 0; i < sizeof sets.behind; i++) is_whole &= sets.behind[i] == 0xff;
    NOTE("%s of %s: %d %s, in it %d, behind it %s", what,
         count == 1024         ? "a set"
         : count == 0x7fffffff ? "everything"
                               : "the table",
         got, got < 0 ? name_of(errno) : "", !!FD_ISSET(fd, &sets.set),
         is_whole ? "nothing" : "something");
}

int main(void) {
    int fd = tcp(7001), pair[2];
    if (pipe(pair) || write(pair[1], "x", 1) != 1 || write(fd, "x", 1) != 1) return 1;
    readable(fd);
    for (int i = 0; i < 3; i++) {
        int count = i == 0 ? 1024 : i == 1 ? getdtablesize() : 0x7fffffff;
        one("a connection", fd, count);
        one("a pipe", pair[0], count);
    }
    SAY(select(-1, &sets.set, 0, 0, 0));

    /* As programs do that have more: their sets are as long as they need. */
    static unsigned long many[65536 / 64];
    SAY(dup2(fd, 3000));
    many[3000 / 64] = 1UL << 3000 % 64;
    SAY(select(3001, (void *)many, 0, 0, 0));
    SAY(many[3000 / 64] == 1UL << 3000 % 64);
    SAY(select(4000, (void *)many, 0, 0, 0));
    struct timeval now = {0, 0};
    SAY(select(3000, (void *)many, 0, 0, &now));
    SAY(dup2(pair[0], 3500));
    memset(many, 0, sizeof many), many[3500 / 64] = 1UL << 3500 % 64,
                                              many[3000 / 64] = 1UL << 3000 % 64;
    SAY(select(3501, (void *)many, 0, 0, 0));
    SAY(close(3000));
    SAY(select(3501, (void *)many, 0, 0, &now));
}
