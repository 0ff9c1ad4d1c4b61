/* What comes into a set, or is bound, connected, shut down or closed, while another thread
 * waits. */
#include "t.h"

static int set, fd, news[2];

struct heard {
    int n, error;
    unsigned events;
    char text[64];
};

/* Waits in epoll_wait for one event and tells of it. */
static void *waiter(void *heard_) {
    struct heard *heard = heard_;
    struct epoll_event event = {0};
    heard->n = epoll_wait(set, &event, 1, 3000);
    heard->events = event.events;
    return 0;
}

static void *poller(void *heard_) {
    struct heard *heard = heard_;
    struct pollfd p = {fd, POLLIN, 0};
    heard->n = poll(&p, 1, 3000);
    heard->events = p.revents;
    return 0;
}

static void *selecter(void *heard_) {
    struct heard *heard = heard_;
    struct timeval limit = {3, 0};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    heard->n = select(fd + 1, &in, 0, 0, &limit);
    heard->events = FD_ISSET(fd, &in) != 0;
    return 0;
}

static void *receiver(void *heard_) {
    struct heard *heard = heard_;
    heard->n = recv(fd, heard->text, sizeof heard->text - 1, 0);
    heard->error = heard->n < 0 ? errno : 0;
    return 0;
}

static void *acceptor(void *heard_) {
    struct heard *heard = heard_;
    heard->n = accept(fd, 0, 0);
    heard->error = heard->n < 0 ? errno : 0;
    return 0;
}

static pthread_t thread;
static struct heard heard;

/* Another thread is asleep in `how` when it returns. */
static void begin(void *(*how)(void *)) {
    memset(&heard, 0, sizeof heard);
    pthread_create(&thread, 0, how, &heard);
    sleep_ms(60);
}

static void end(const char *what) {
    pthread_join(thread, 0);
    NOTE("%s: %d %s, events %x, \"%s\"", what, heard.n < 0 ? -1 : heard.n > 0,
         heard.error ? name_of(heard.error) : "", heard.events, heard.text);
}

static void begin_set(void) {
    struct epoll_event event = {.events = EPOLLIN};
    set = epoll_create1(0);
    if (pipe(news)) exit(1);
    epoll_ctl(set, EPOLL_CTL_ADD, news[0], &event);
    begin(waiter);
}

static void end_set(const char *what) {
    end(what);
    close(set), close(news[0]), close(news[1]);
}

static int control(int op, int in, int what, unsigned events) {
    struct epoll_event event = {.events = events};
    return epoll_ctl(in, op, what, &event);
}

static int add(int in, int what, unsigned events) {
    return control(EPOLL_CTL_ADD, in, what, events);
}

/* The peer comes to the listener, of which the thread hears before it is accepted. */
static void serve(int server, int port, const char *what) {
    int asked = ask_peer(port, "hello");
    end_set(what);
    nonblocking(server);
    int got = accept(server, 0, 0);
    char text[8] = "";
    if (got >= 0) read_all(got, text, 5), close(got);
    NOTE("it said %s", text);
    close(asked), close(server);
}

static void listeners(void) {
    int one = 1, server;

    begin_set();
    server = listener(8390);
    SAY(add(set, server, EPOLLIN));
    serve(server, 8390, "a listener");

    begin_set();
    server = listener(8391);
    SAY(add(set, server, EPOLLIN | EPOLLET));
    serve(server, 8391, "a listener by its edge");

    server = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    SAY(bind_to(server, own_ip(), 8392));
    begin_set();
    SAY(add(set, server, EPOLLIN | EPOLLONESHOT));
    pthread_join(thread, 0);
    begin(waiter);
    SAY(listen(server, 5));
    SAY(control(EPOLL_CTL_MOD, set, server, EPOLLIN));
    serve(server, 8392, "one that listens later");

    begin_set();
    server = listener(8393);
    SAY(add(set, server, 0));
    SAY(control(EPOLL_CTL_MOD, set, server, EPOLLIN));
    serve(server, 8393, "a listener that is wanted later");

    int inner = epoll_create1(0);
    server = listener(8394);
    SAY(add(inner, server, EPOLLIN));
    begin_set();
    SAY(add(set, inner, EPOLLIN));
    serve(server, 8394, "a set with a listener");

    begin_set();
    SAY(add(set, inner, EPOLLIN));
    sleep_ms(60);
    server = listener(8395);
    SAY(add(inner, server, EPOLLIN));
    serve(server, 8395, "a listener in a set of the set");
    close(inner);

    begin_set();
    server = listener(8396);
    SAY(add(set, server, EPOLLIN | EPOLLEXCLUSIVE));
    serve(server, 8396, "an exclusive listener");
}

static void connections(void) {
    begin_set();
    int late = tcp(7008);
    SAY(add(set, late, EPOLLIN));
    end_set("a connection");
    close(late);

    late = socket(AF_INET, SOCK_STREAM, 0);
    begin_set();
    SAY(add(set, late, EPOLLIN | EPOLLONESHOT | EPOLLET));
    pthread_join(thread, 0);
    begin(waiter);
    SAY(connect_to(late, peer_ip(), 7008));
    SAY(control(EPOLL_CTL_MOD, set, late, EPOLLIN | EPOLLONESHOT));
    end_set("one that connects later");
    close(late);

    begin_set();
    late = tcp(7001);
    SAY(add(set, late, EPOLLIN));
    SAY(shutdown(late, SHUT_RD));
    end_set("one that is shut down");
    close(late);
}

static void datagrams(void) {
    int asked;

    begin_set();
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(bind_to(fd, own_ip(), 8397));
    SAY(add(set, fd, EPOLLIN));
    asked = ask_peer(8397, "udp");
    end_set("a datagram socket");
    close(asked), close(fd);

    begin_set();
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(add(set, fd, EPOLLIN));
    SAY(bind_to(fd, own_ip(), 8398));
    asked = ask_peer(8398, "udp");
    end_set("one that is bound later");
    close(asked), close(fd);

    begin_set();
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    SAY(add(set, fd, EPOLLIN));
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(send(fd, "echo", 4, 0));
    end_set("one that is connected later");
    close(fd);

    void *(*ways[])(void *) = {poller, selecter, receiver};
    const char *names[] = {"poll", "select", "recv"};
    for (int i = 0; i < 3; i++) {
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        begin(ways[i]);
        SAY(bind_to(fd, i ? own_ip() : "0.0.0.0", 8400 + i));
        asked = ask_peer(8400 + i, "udp");
        end(names[i]);
        close(asked), close(fd);
    }
    for (int i = 0; i < 3; i++) {
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        int other = socket(AF_INET, SOCK_DGRAM, 0);
        begin(ways[i]);
        SAY(bind_to(fd, "127.0.0.1", 8403 + i));
        struct sockaddr_in to = at("127.0.0.1", 8403 + i);
        SAY(sendto(other, "loop", 4, 0, (void *)&to, sizeof to));
        end(names[i]);
        close(other), close(fd);
    }

    fd = socket(AF_INET, SOCK_DGRAM, 0);
    begin(receiver);
    SAY(connect_to(fd, peer_ip(), 7001));
    SAY(send(fd, "echo", 4, 0));
    end("recv of one that is connected later");
    begin(receiver);
    SAY(shutdown(fd, SHUT_RD));
    end("recv of one that is shut down");
    close(fd);
}

static void closing(void) {
    fd = listener(8399);
    begin(acceptor);
    SAY(shutdown(fd, SHUT_RD));
    end("accept of one that is shut down");
    close(fd);

    fd = tcp(7001);
    begin(poller);
    SAY(shutdown(fd, SHUT_RDWR));
    end("poll of one that is shut down");
    close(fd);

    fd = tcp(7008);
    begin(receiver);
    SAY(close(fd));
    end("recv of one that is closed");

    fd = tcp(7001);
    begin(receiver);
    SAY(shutdown(fd, SHUT_WR));
    end("recv of one that is shut for writing");
    close(fd);

    fd = tcp(7008);
    begin(poller);
    SAY(close(fd));
    end("poll of one that is closed");
}

int main(void) {
    listeners();
    connections();
    datagrams();
    closing();
}
