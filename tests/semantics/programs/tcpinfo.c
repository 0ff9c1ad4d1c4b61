/* TCP_INFO: what does not depend on time, after each step of some exchanges. */
#include "t.h"

/* linux/tcp.h from its beginning to tcpi_rcv_ooopack; libc's stops before the counts. */
struct all {
    struct tcp_info head;
    uint64_t tcpi_pacing_rate, tcpi_max_pacing_rate, tcpi_bytes_acked, tcpi_bytes_received;
    uint32_t tcpi_segs_out, tcpi_segs_in, tcpi_notsent_bytes, tcpi_min_rtt, tcpi_data_segs_in,
        tcpi_data_segs_out;
    uint64_t tcpi_delivery_rate, tcpi_busy_time, tcpi_rwnd_limited, tcpi_sndbuf_limited;
    uint32_t tcpi_delivered, tcpi_delivered_ce;
    uint64_t tcpi_bytes_sent, tcpi_bytes_retrans;
    uint32_t tcpi_dsack_dups, tcpi_reord_seen, tcpi_rcv_ooopack;
};
_Static_assert(sizeof(struct tcp_info) == 104, "libc has come further");

static struct all info(int fd) {
    struct all all = {0};
    socklen_t len = sizeof all;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &all, &len)) NOTE("TCP_INFO: %s", name_of(errno));
    return all;
}

/* The bit beside the window scales. */
static int is_app_limited(const struct all *i) { return ((const unsigned char *)i)[7] & 1; }

/* `sent`: the data segments of the peer. One more is one that it has repeated because the machine
 * stood still. */
static void counts(const char *when, int fd, unsigned sent) {
    struct all i = info(fd);
    unsigned in = i.tcpi_data_segs_in == sent + 1 ? sent : i.tcpi_data_segs_in;
    NOTE("%s: data segments %u in %u out, delivered %u, acked %llu received %llu sent %llu resent "
         "%llu",
         when, in, i.tcpi_data_segs_out, i.tcpi_delivered, (unsigned long long)i.tcpi_bytes_acked,
         (unsigned long long)i.tcpi_bytes_received, (unsigned long long)i.tcpi_bytes_sent,
         (unsigned long long)i.tcpi_bytes_retrans);
    NOTE("  unacked %u sacked %u lost %u retrans %u/%u not sent %u, out of order %u",
         i.head.tcpi_unacked, i.head.tcpi_sacked, i.head.tcpi_lost, i.head.tcpi_retrans,
         i.head.tcpi_total_retrans, i.tcpi_notsent_bytes, i.tcpi_rcv_ooopack);
    NOTE("  rate %s limited by the %s, minimum %s, timestamps and SACK %s, full segments %u",
         i.tcpi_delivery_rate ? "known" : "unknown", is_app_limited(&i) ? "program" : "path",
         i.tcpi_min_rtt == ~0u ? "unknown" : "known", (i.head.tcpi_options & 7) == 7 ? "yes" : "no",
         i.head.tcpi_advmss);
}

static void handshake(void) {
    int fd = tcp(7004);
    struct all i = info(fd);
    counts("connected", fd, 0);
    NOTE("segments %u in %u out, ato %s, ssthresh %s", i.tcpi_segs_in, i.tcpi_segs_out,
         i.head.tcpi_ato ? "some" : "none",
         i.head.tcpi_snd_ssthresh == 0x7fffffff ? "none" : "some");
    close(fd);

    int l = listener(7101), control = ask_peer(7101, "ask");
    int s = accept(l, 0, 0);
    char buf[16];
    readable(s);
    i = info(s);
    counts("accepted", s, 1);
    NOTE("segments %u in", i.tcpi_segs_in);
    SAY(read(s, buf, sizeof buf));
    SAY(write(s, "hi\n", 3));
    SAY(read_all(s, buf, 12));
    sleep_ms(50);
    counts("answered", s, 3);
    close(s), close(control), close(l);
}

static void echo(void) {
    static char buf[1000];
    int fd = tcp(7001);
    for (int n = 0; n < 5; n++) {
        write(fd, buf, 100);
        read_all(fd, buf, 100);
        sleep_ms(5);
    }
    counts("five echoes", fd, 5);
    sleep_ms(400);
    struct all i = info(fd);
    NOTE("the rate is %s after a rest; data sent %s, received %s",
         i.tcpi_delivery_rate ? "known" : "forgotten",
         i.head.tcpi_last_data_sent >= 390 ? "long ago" : "lately",
         i.head.tcpi_last_data_recv >= 390 ? "long ago" : "lately");
    close(fd);

    /* A FIN is no data. */
    fd = tcp(7006);
    write(fd, buf, 100);
    sleep_ms(400);
    SAY(shutdown(fd, SHUT_WR));
    i = info(fd);
    NOTE("data sent %s, state %u", i.head.tcpi_last_data_sent >= 390 ? "long ago" : "lately",
         i.head.tcpi_state == 5 ? 4 : i.head.tcpi_state);
    close(fd);
}

static void bulk(void) {
    static char buf[14480];
    int fd = tcp(7004);
    for (int n = 0; n < 10; n++) SAY(write(fd, buf, sizeof buf));
    sleep_ms(200);
    /* How it is cut depends on time; nothing is counted twice or not at all. */
    struct all i = info(fd);
    NOTE("144,800 bytes: %s segments, %s delivered, acked %llu sent %llu, rate %s",
         i.tcpi_data_segs_out >= 100 && i.tcpi_data_segs_out <= 120 ? "some 100" : "strangely many",
         i.tcpi_delivered == i.tcpi_data_segs_out - i.head.tcpi_total_retrans + 1 ? "all"
                                                                                  : "not all",
         (unsigned long long)i.tcpi_bytes_acked,
         (unsigned long long)(i.tcpi_bytes_sent - i.tcpi_bytes_retrans),
         i.tcpi_delivery_rate ? "known" : "unknown");
    close(fd);
}

static void closed_window(void) {
    static char buf[65536];
    int fd = tcp(7006);
    nonblocking(fd);
    while (write(fd, buf, sizeof buf) > 0) {}
    sleep_ms(300);
    while (write(fd, buf, sizeof buf) > 0) {}
    sleep_ms(900);
    struct all i = info(fd);
    NOTE("closed window: limited by it %s, busy %s, data waits %s",
         i.tcpi_rwnd_limited > 500000 ? "long" : "shortly",
         i.tcpi_busy_time > 500000 ? "long" : "shortly", i.tcpi_notsent_bytes ? "yes" : "no");
    NOTE("  unacked %u, retransmits %u, backoff %s, rto %s", i.head.tcpi_unacked,
         i.head.tcpi_retransmits, i.head.tcpi_backoff ? "some" : "none",
         i.head.tcpi_rto < 400000 ? "plain" : "backed off");
    struct linger off = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
    close(fd);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    handshake();
    echo();
    bulk();
    closed_window();
    struct all i = info(socket(AF_INET, SOCK_STREAM, 0));
    NOTE("fresh: state %u cwnd %u", i.head.tcpi_state, i.head.tcpi_snd_cwnd);
}
