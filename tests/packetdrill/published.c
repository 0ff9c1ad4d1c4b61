// Runs a script's events as packetdrill does as it is published: its waits sleep until shortly
// before an event and then look at the clock without a pause, a command sets a sysctl after the
// library is loaded, blocking calls are made on a second thread, and what a block of code asks of a
// connection is asked by libc's getsockopt. Needs a network namespace of its own, and the library
// preloaded.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/times.h>
#include <unistd.h>

#include "interface.h"

enum {
    SPIN_US = 20,
    TOLERANCE_US = 4000,
    SO_MEMINFO_NAME = 55,
    MEMINFO_VARS = 9,
    TCP_CC_INFO_NAME = 26
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct packetdrill_interface ifc;
static long long start_us;
static int events, listener, connection = -1;
static atomic_int second;

static long long now_us(void) {
    struct timeval now;
    CHECK(ifc.gettimeofday(ifc.userdata, &now, NULL) == 0);
    return now.tv_sec * 1000000LL + now.tv_usec;
}

// The lock is held but while this sleeps.
static void wait_for(long long script_us) {
    long long left;
    while ((left = start_us + script_us - now_us()) > 0) {
        if (events > 0 && left > SPIN_US) {
            pthread_mutex_unlock(&lock);
            ifc.usleep(ifc.userdata, left - SPIN_US);
            pthread_mutex_lock(&lock);
        }
    }
    long long late = now_us() - start_us - script_us;
    if (events++ > 0) CHECK(late >= 0 && late < TOLERANCE_US);
}

static void inject(long long script_us, uint32_t seq, uint32_t ack, const char *flags, size_t len) {
    struct packet packet;
    wait_for(script_us);
    len = segment(&packet, seq, ack, flags, len);
    CHECK(ifc.netdev_send(ifc.userdata, &packet, len) == 0);
}

static struct packet expect(long long script_us) {
    struct packet packet;
    size_t len = sizeof packet;
    long long at_us;
    CHECK(ifc.netdev_receive(ifc.userdata, &packet, &len, &at_us) == 0 && len >= 40);
    CHECK(llabs(at_us - start_us - script_us) < TOLERANCE_US);
    return packet;
}

// Waits until the second thread sleeps in its call.
static void await_sleeper(void) {
    char path[64], state = 0;
    for (int rounds = 0; state != 'S'; rounds++) {
        CHECK(rounds < 10000);
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&second));
        FILE *file = fopen(path, "r");
        if (!file) continue;
        CHECK(fscanf(file, "%*d %*s %c", &state) == 1);
        fclose(file);
    }
}

static void *blocking(void *unused) {
    atomic_store(&second, gettid());
    char bytes[100];
    int fd = ifc.accept(ifc.userdata, listener, NULL, NULL);
    long long at_us = now_us();
    pthread_mutex_lock(&lock);
    connection = fd;
    CHECK(llabs(at_us - start_us - 100000) < TOLERANCE_US);
    pthread_mutex_unlock(&lock);
    CHECK(ifc.read(ifc.userdata, fd, bytes, sizeof bytes) == 10);
    at_us = now_us();
    CHECK(llabs(at_us - start_us - 200000) < TOLERANCE_US);
    return unused;
}

// packetdrill's `%{ }%`: TCP_INFO, TCP_CC_INFO and SO_MEMINFO, one after the other.
static void code(void) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    CHECK(getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
    CHECK(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_unacked == 2 && info.tcpi_options == 0);
    char about[64];
    len = sizeof about;
    CHECK(getsockopt(connection, IPPROTO_TCP, TCP_CC_INFO_NAME, about, &len) == 0);
    uint32_t memory[MEMINFO_VARS];
    len = sizeof memory;
    CHECK(getsockopt(connection, SOL_SOCKET, SO_MEMINFO_NAME, memory, &len) == 0 &&
          len == sizeof memory);
    CHECK(memory[0] == 0 && memory[5] == 2000 && memory[1] > 0 && memory[3] > 0);
    int pair[2], kind;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    len = sizeof kind;
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &kind, &len) == 0 && kind == SOCK_STREAM);
    CHECK(getsockopt(-1, SOL_SOCKET, SO_TYPE, &kind, &len) == -1 && errno == EBADF);
    close(pair[0]);
    close(pair[1]);
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(ifc.getsockopt(ifc.userdata, fd, level, name, &value, &len) == 0 && len == sizeof value);
    return value;
}

static void options(int fd) {
    int low = 5000, size = 20000;
    CHECK(option(fd, IPPROTO_TCP, TCP_MAXSEG) == 1000);
    CHECK(option(fd, SOL_SOCKET, SO_SNDBUF) > 0);
    CHECK(ifc.setsockopt(ifc.userdata, fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    CHECK(option(fd, SOL_SOCKET, SO_SNDBUF) == 2 * size);
    CHECK(ifc.setsockopt(ifc.userdata, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low) == 0);
    CHECK(option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT) == low);
}

static void begin(const char *library) {
    struct sched_param priority = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    sched_setscheduler(0, SCHED_RR, &priority);
    mlockall(MCL_CURRENT | MCL_FUTURE);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_DEEPBIND);
    CHECK(handle);
    void (*init)(const char *, struct packetdrill_interface *) =
        dlsym(handle, "packetdrill_interface_init");
    CHECK(init);
    init(NULL, &ifc);
    CHECK(
        system(
            "echo 0 > /proc/sys/net/ipv4/tcp_timestamps && echo 0 > /proc/sys/net/ipv4/tcp_sack") ==
        0);
    // The beginning is a look at the clock after some ticks, and a bit later.
    clock_t last = times(NULL);
    for (int ticks = 0; ticks < 3;) {
        clock_t now = times(NULL);
        if (now != last) {
            start_us = now_us() + 250;
            ticks++;
        }
        last = now;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    alarm(20);
    pthread_mutex_lock(&lock);
    begin(argv[1]);
    wait_for(0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(8080)};
    own.sin_addr.s_addr = inet_addr("192.168.0.1");
    listener = ifc.socket(ifc.userdata, AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(ifc.bind(ifc.userdata, listener, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(ifc.listen(ifc.userdata, listener, 1) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, blocking, NULL) == 0);
    await_sleeper();

    // MSS 1000, SACK and timestamps are offered; the last two are off here.
    inject(50000, 0, 0, "So", 0);
    struct packet answer = expect(50000);
    CHECK(answer.tcp.syn && answer.tcp.ack && answer.tcp.doff == 6);
    uint32_t theirs = ntohl(answer.tcp.seq) + 1;
    inject(100000, 1, theirs, ".", 0);
    inject(200000, 1, theirs, ".", 10);
    answer = expect(200000);
    CHECK(ntohl(answer.tcp.ack_seq) == 11);
    pthread_mutex_unlock(&lock);
    CHECK(pthread_join(thread, NULL) == 0);
    pthread_mutex_lock(&lock);

    static char bytes[2000];
    wait_for(300000);
    options(connection);
    CHECK(ifc.write(ifc.userdata, connection, bytes, sizeof bytes) == sizeof bytes);
    answer = expect(300000);
    CHECK(ntohs(answer.ip.tot_len) >= 1040);
    wait_for(300100);
    code();
    CHECK(ifc.close(ifc.userdata, connection) == 0 && ifc.close(ifc.userdata, listener) == 0);
    ifc.free(ifc.userdata);
    puts("the library serves packetdrill as it is published");
    return 0;
}
