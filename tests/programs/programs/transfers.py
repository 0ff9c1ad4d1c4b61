"""Serves connections that never end: streams to those that send `stream`, sends nothing to those
that send `silent`, stops reading those that send `deaf`. Usage: transfers.py PORT"""

import selectors
import socket
import sys

selector = selectors.DefaultSelector()
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=512)
listener.setblocking(False)
selector.register(listener, selectors.EVENT_READ, "listener")
block = b"d" * 16384
deaf = []
while True:
    for key, _ in selector.select():
        if key.data == "listener":
            sock, _ = listener.accept()
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ, "new")
        elif key.data == "new":
            word = key.fileobj.recv(100)
            if word == b"stream":
                selector.modify(key.fileobj, selectors.EVENT_WRITE, "stream")
            elif not word:
                selector.unregister(key.fileobj)
                key.fileobj.close()
            else:
                key.fileobj.send(b"quiet")
                if word == b"deaf":
                    selector.unregister(key.fileobj)
                    deaf.append(key.fileobj)
        else:
            try:
                key.fileobj.send(block)
            except BlockingIOError:
                pass
            except OSError:
                selector.unregister(key.fileobj)
                key.fileobj.close()
