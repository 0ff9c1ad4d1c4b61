"""Scripts that once had another result than on the kernel, each reduced to what it needs."""

from scripts import written

BEGINS = """
A listen 20 7000
P connect 31 ADDRESS 7000
A accept 20 21
"""

STORIES = {
    "an owner becomes another program beside a child that has not used the connection": """
A fork K1
A exec
A write-waiting 21 mine
K1 write 21 his
P read 31 4000
P write 31 more
K1 read-waiting 21 4000
""",
    "an owner becomes another program beside a child's program": """
A fork K1
K1 spawn K2
A exec
K2 write 21 two
K1 exit
K2 write 21 three
P read 31 4000
""",
    "an owner that ends later has become another program": """
A fork K1
A exec
A exit
K1 dup 21 22
K1 read 22 1
P write 31 more
K1 read-waiting 22 4000
""",
    "an owner becomes another program while two processes use the connection": """
P write 31 begin
A fork K1
K1 read 21 2
A fork K2
K2 read 21 1
A exec
A read 21 2
K1 write 21 one
K2 write 21 two
A write 21 three
P read 31 4000
""",
    "an owner's other connection moves as it becomes another program": """
A fork K1
P connect 32 ADDRESS 7000
K1 accept 20 22
P write 32 text
K1 read 22 2
K1 send 21 A
A receive 22
K1 fork K2
A exec
K1 wait 21
P write 31 more
K1 read-waiting 21 4000
""",
    "a connection waits at a process that accepts none, and the one that did has ended": """
A fork K1
A fork K2
P connect 32 ADDRESS 7000
K1 accept 20 22
K1 exit
P connect 33 ADDRESS 7000
K2 accept 20 22
P write 33 text
K2 read-waiting 22 4000
""",
    "a program finds its epoll set as the one before it has left it": """
A epoll 23
A watch 23 21 1
A exec
A collect 23
P write 31 text
A collect 23
A read 21 4000
A collect 23
""",
    "one user shuts the sending direction down before another writes for the first time": """
A spawn K1
K1 spawn K2
K1 fork K3
K2 write 21 one
K2 shutdown 21 1
K3 write 21 late
A write 21 late
P read 31 4000
P read 31 4000
""",
    "an owner shuts both directions down, and its child reads the end": """
A fork K1
K1 write 21 one
A fork K2
A shutdown 21 2
K1 read-waiting 21 2
K2 read-waiting 21 2
P read 31 4000
P close 31
K1 read-waiting 21 2
""",
    "an owner shuts its direction down, and its child reads until the peer's end": """
A fork K1
K1 read 21 1
A write 21 last
A shutdown 21 1
P read 31 4000
P read 31 4000
P write 31 reply
P close 31
K1 read-waiting 21 4000
K1 read-waiting 21 4000
""",
    "a peer closes, and its reset behind that is no error for a child that reads": """
A fork K1
P close 31
K1 write-waiting 21 one
K1 read-waiting 21 10
""",
    "a peer closes, and a child that has polled and written reads the end": """
A fork K1
K1 write 21 one
P read 31 4000
P close 31
K1 poll 21
K1 write 21 two
K1 read 21 10
""",
    "a peer's reset comes while nobody reads": """
A write 21 unread
A fork K1
K1 read 21 1
P close 31
K1 read-waiting 21 10
K1 read-waiting 21 10
K1 write 21 late
""",
    "an owner shuts its direction down, and a child that has written before may not write": """
A fork K1
K1 write 21 one
P read 31 4000
A shutdown 21 1
K1 poll 21
K1 write 21 two
K1 option 21 error
P read 31 4000
P read 31 4000
P write 31 reply
K1 read 21 4000
P close 31
K1 read 21 4000
K1 poll 21
""",
    "a child shuts the direction down, and others that have written before may not write": """
A fork K1
A fork K2
K1 write 21 one
K2 write 21 two
K2 shutdown 21 1
K1 write-waiting 21 three
A write 21 four
P read 31 4000
P close 31
A exit
K1 read-waiting 21 4000
K1 write 21 five
""",
    "a peer resets a connection whose direction another process has shut down": """
A fork K1
K1 write 21 one
A write 21 unread
A shutdown 21 1
K1 write 21 two
P close 31
K1 write 21 three
K1 write 21 four
K1 read 21 10
""",
    "a connection is sent to another process after its direction has been shut down": """
A fork K1
K1 write 21 one
P read 31 4000
A shutdown 21 1
A fork K2
K1 send 21 K2
K2 close 21
K2 receive 22
K2 write 22 two
P write 31 reply
K2 read-waiting 22 4000
P close 31
K2 read-waiting 22 4000
""",
    "a peer's reset behind its end is EPIPE for the next write of a child": """
A fork K1
K1 write 21 one
P read 31 4000
P close 31
K1 write 21 two
K1 write 21 three
K1 option 21 error
K1 read 21 10
K1 poll 21
""",
    "a peer's reset behind its end is EPIPE for SO_ERROR, once": """
A fork K1
A fork K2
K1 write 21 one
K2 write 21 two
P read 31 4000
P close 31
K1 write 21 three
K1 read 21 10
K1 poll 21
K1 option 21 error
K1 poll 21
K2 option 21 error
K2 write 21 four
A write 21 five
""",
    "a child's first call after a reset is a write": """
A write 21 unread
A fork K1
P close 31
K1 write 21 one
K1 write 21 two
K1 read 21 10
A write 21 three
""",
    "a child's first call after a reset behind the peer's end is a write": """
A fork K1
A fork K2
P close 31
A write 21 one
K1 write-waiting 21 two
K2 write-waiting 21 three
K2 read-waiting 21 10
""",
    "a child's first call after a reset is SO_ERROR": """
A write 21 unread
A fork K1
P close 31
K1 option 21 error
K1 read 21 10
A option 21 error
""",
    "a reset is told to the first that reads": """
A write 21 unread
A fork K1
A fork K2
K1 read 21 10
K2 read 21 10
P close 31
K2 read 21 10
K1 read 21 10
A read 21 10
K1 write 21 one
""",
    "a reset is told to the first that writes": """
A write 21 unread
A fork K1
A fork K2
K1 read 21 10
K2 write 21 one
P close 31
K1 write 21 one
K2 write 21 two
K1 read 21 10
K2 read 21 10
K2 option 21 error
""",
    "what was reset has no peer for a child, before the error is read and after": """
A write 21 unread
A fork K1
K1 read 21 10
K1 peer 21
P close 31
K1 peer 21
K1 shutdown 21 1
K1 read 21 10
K1 peer 21
K1 shutdown 21 1
A peer 21
A shutdown 21 1
""",
    "what has ended in both directions has no peer for a child": """
A fork K1
K1 read 21 10
P write 31 text
K1 read 21 10
P shutdown 31 1
K1 read 21 10
K1 peer 21
K1 shutdown 21 1
K1 peer 21
K1 shutdown 21 1
A peer 21
A shutdown 21 0
""",
    "a reset is told to the owner if it looks first": """
A write 21 unread
A fork K1
K1 read 21 10
P close 31
K1 poll 21
A option 21 error
K1 poll 21
K1 read 21 10
K1 write 21 one
""",
    "a reset waits for the child when its owner has closed the connection": """
A write 21 unread
A fork K1
K1 read 21 10
P close 31
A close 21
K1 poll 21
K1 option 21 error
K1 option 21 error
K1 read 21 10
""",
    "a reset waits for the child when its owner has ended": """
A write 21 unread
A fork K1
K1 read 21 10
P close 31
A exit
K1 write 21 one
K1 read 21 10
""",
    "bytes that came before a reset are read behind a write that fails": """
A write 21 unread
A fork K1
K1 read 21 10
P write 31 last
P close 31
K1 option 21 error
K1 write 21 one
K1 read 21 10
K1 read 21 10
""",
    "an epoll set tells of a reset until somebody has taken it": """
A write 21 unread
A fork K1
A fork K2
K1 epoll 23
K1 watch 23 21 80000005
P close 31
K1 collect 23
K2 read 21 10
K1 collect 23
""",
    "a child that has shut its own direction down learns of a reset, once": """
A write 21 unread
A fork K1
K1 read 21 10
K1 shutdown 21 1
P close 31
K1 poll 21
K1 read 21 10
K1 read 21 10
K1 write 21 one
A read 21 10
""",
    "a child that has shut its own direction down reads the end": """
A fork K1
K1 write 21 one
K1 shutdown 21 1
P read 31 4000
P write 31 reply
P close 31
K1 read 21 10
K1 read 21 10
K1 poll 21
K1 option 21 error
K1 write 21 two
""",
    "a child shuts down what the peer has reset, and then learns of the reset": """
A write 21 unread
A fork K1
K1 read 21 1
P close 31
K1 shutdown 21 1
K1 read 21 10
K1 read 21 10
""",
    "a child closes what the peer has reset, and its owner learns of it": """
A write 21 unread
A fork K1
K1 read 21 1
P close 31
K1 close 21
A read 21 10
A close 21
""",
    "bytes that come after a read's time was over are for the next reader": """
A fork K1
K1 read-waiting 21 4000
P write 31 next
A read-waiting 21 4000
""",
    "bytes that come after a read that does not wait are for the next reader": """
A spawn K1
A read 21 4000
A exec
A read 21 2
P write 31 next
K1 read-waiting 21 4000
""",
}

DATAGRAMS_BEGIN = """
P udp 31 PEER 7300
"""

DATAGRAM_STORIES = {
    "a program asks for the length of the first datagram before anything else": """
A udp 21 ADDRESS 7200
P sendto 31 ADDRESS 7200 text
A unread 21
A from 21 4000
A unread 21
""",
    "a program has been started with a UDP socket that its parent binds by sending": """
A udp 21
A spawn K1
A sendto 21 PEER 7300 one
K1 name 21
K1 sendto 21 PEER 7300 two
P from 31 4000
P from 31 4000
P reply 31 answer
K1 from-waiting 21 4000
""",
    "a program sends by a UDP socket before the parent that has started it does": """
A udp 21
A spawn K1
K1 sendto 21 PEER 7300 one
A sendto 21 PEER 7300 two
A spawn K2
K2 sendto 21 PEER 7300 three
P from 31 4000
P from 31 4000
P from 31 4000
""",
    "a child polls a UDP socket for the first time after its owner has ended": """
A udp 21 ADDRESS 7200
A poll 21
A fork K1
P sendto 31 ADDRESS 7200 one
A exit
K1 wait 21
K1 from 21 4000
K1 wait 21
P sendto 31 ADDRESS 7200 two
K1 wait 21
K1 from 21 4000
""",
    "a child of an owner that has ended starts a program with a connected UDP socket": """
A udp 21 ADDRESS 7200
A reconnect 21 PEER 7300
A fork K1
K1 write 21 one
A exit
K1 spawn K2
K2 wait 21
K2 write 21 two
P from 31 4000
P from 31 4000
""",
    "a datagram that a process has not read at its end is for its child": """
A udp 21 ADDRESS 7200
A fork K1
A wait 21
P sendto 31 ADDRESS 7200 one
A wait 21
A exit
K1 wait 21
K1 from 21 4000
""",
}


def scripts():
    parts = ((BEGINS, STORIES), (DATAGRAMS_BEGIN, DATAGRAM_STORIES))
    return {name: written(begin + lines) for begin, of in parts for name, lines in of.items()}
