"""An echo server of lines that shares its instance: `busy_beside.py busy|asleep PORT`. The busy one
waits by epoll_wait(0) in a loop. The line `count` is answered with the process's voluntary switches
so far and its waits."""

import select
import socket
import sys

how, port = sys.argv[1], int(sys.argv[2])
with socket.create_server(("0.0.0.0", port)) as listener, select.epoll() as waiting:
    listener.setblocking(False)
    waiting.register(listener, select.EPOLLIN)
    socks, waits = {}, 0
    while True:
        waits += 1
        for fd, _ in waiting.poll(0 if how == "busy" else None):
            if fd == listener.fileno():
                sock = listener.accept()[0]
                socks[sock.fileno()] = sock
                waiting.register(sock, select.EPOLLIN)
            elif not (line := socks[fd].recv(1000)):
                socks.pop(fd).close()
            elif line == b"count\n":
                with open("/proc/self/status") as status:
                    (switches,) = [it.split()[1] for it in status if it.startswith("voluntary")]
                socks[fd].sendall(b"%d %d\n" % (int(switches), waits))
            else:
                socks[fd].sendall(line)
