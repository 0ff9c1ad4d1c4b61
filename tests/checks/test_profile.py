"""The parts that `scripts/floor` tells apart, on lines in the form that `perf script` prints."""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent / "page"), str(FOLDER.parent / "programs")]

from page import floors, profile  # noqa: E402
from page.profile import CLIENT, DEVICE, OURS, PARTS, PROGRAM, REST, SOCKETS, WAITING  # noqa: E402

KERNEL, LIBRARY = "[kernel.kallsyms]", "/usr/lib/libslipstack.so"
RECEIPT = ["process_backlog", "__napi_poll", "net_rx_action", "handle_softirqs"]
SENT = ["veth_xmit", "__dev_queue_xmit"]


def frames(*functions, file=KERNEL):
    return [(function, file) for function in functions]


class Parts(unittest.TestCase):
    def both(self, side, functions):
        return [profile.part(side, frames(*functions), kernel) for kernel in (True, False)]

    def test_user_code_belongs_to_its_file(self):
        self.assertEqual(profile.part(PROGRAM, frames("run", file="/usr/sbin/d"), False), PROGRAM)
        self.assertEqual(profile.part(PROGRAM, frames("turn", file=LIBRARY), False), OURS)
        self.assertEqual(profile.part(OURS, frames("memcpy", file="libc.so.6"), False), OURS)
        self.assertEqual(profile.part(PROGRAM, [("now", "[vdso]")], False), PROGRAM)

    def test_a_stranger_belongs_to_nobody(self):
        self.assertIsNone(profile.part(None, frames("run", file="/usr/bin/other"), False))
        self.assertEqual(self.both(None, ["tpacket_rcv", *RECEIPT]), [None, None])

    def test_a_receipt_belongs_to_the_end_that_receives(self):
        tcp = ["tcp_ack", "tcp_v4_rcv", "ip_local_deliver_finish", "ip_rcv", *RECEIPT, *SENT]
        self.assertEqual(self.both(CLIENT, tcp), [SOCKETS, CLIENT])
        self.assertEqual(self.both(PROGRAM, tcp), [CLIENT, CLIENT])
        ring = ["tpacket_rcv", "__netif_receive_skb_core.constprop.0", *RECEIPT]
        self.assertEqual(self.both(CLIENT, ring)[1], DEVICE)

    def test_a_wake_of_the_server_is_a_wait(self):
        ring = ["sock_def_readable", "tpacket_rcv", *RECEIPT, *SENT]
        self.assertEqual(self.both(CLIENT, ring)[1], WAITING)
        tcp = ["sock_def_readable", "tcp_data_queue", "tcp_v4_rcv", *RECEIPT, *SENT]
        self.assertEqual(self.both(CLIENT, tcp)[0], WAITING)
        # The client's wake is the client's.
        self.assertEqual(self.both(PROGRAM, tcp), [CLIENT, CLIENT])

    def test_calls_of_the_server_are_told_apart(self):
        call = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"]
        for functions, expected in (
            (["packet_sendmsg", "__sys_sendto", *call], [SOCKETS, DEVICE]),
            (["__schedule", "schedule", "tcp_recvmsg", *call], [WAITING, WAITING]),
            (["futex_wake", "do_futex", *call], [WAITING, WAITING]),
            (["tcp_sendmsg_locked", "tcp_sendmsg", *call], [SOCKETS, REST]),
            (["vfs_read", "ksys_read", *call], [REST, REST]),
        ):
            with self.subTest(functions[0]):
                self.assertEqual(self.both(PROGRAM, functions), expected)

    def test_lines_of_perf_are_read_and_children_are_on_their_parents_side(self):
        lines = """
postgres   100/100   PERF_RECORD_FORK(200:200):(100:100)
postgres   100/100   PERF_RECORD_FORK(900:900):(1:1)
a b  200/201
\t    55d0 exec+0x10 (/usr/lib/postgresql/15/bin/postgres)

swapper     0/0
\tffffffff81 default_idle ([kernel.kallsyms])

sh  900/900
\t    55d0 main (/usr/bin/dash)

postgres  200/200
\t    7f00 [unknown] (/usr/lib/libslipstack.so)
"""
        sides = profile.Sides({1000}, {100}, set())
        counted = profile.attribute(lines.splitlines(), sides, False)
        self.assertEqual(dict(counted), {PROGRAM: 1, OURS: 1})


class Floors(unittest.TestCase):
    def test_the_floor_leaves_out_own_code_and_then_waits(self):
        kernel = dict.fromkeys(PARTS, 0.0) | {CLIENT: 4.0, PROGRAM: 4.0, SOCKETS: 6.0, WAITING: 2.0}
        ours = dict.fromkeys(PARTS, 0.0) | {CLIENT: 5.0, PROGRAM: 5.0, DEVICE: 4.0, WAITING: 4.0}
        ours[OURS] = 14.0
        self.assertEqual(floors.floors(kernel, ours), (16 / 32, 16 / 16, 16 / 12))

    def test_runs_are_weighted_by_their_requests(self):
        parts = dict.fromkeys(PARTS, 0.0)
        runs = [
            {"rate": 100.0, "profile": {"seconds": 1.0, "parts": parts | {CLIENT: 0.001}}},
            {"rate": 300.0, "profile": {"seconds": 1.0, "parts": parts | {CLIENT: 0.007}}},
        ]
        self.assertAlmostEqual(floors.per_request(runs)[CLIENT], 20.0)
        self.assertIsNone(floors.per_request([]))


if __name__ == "__main__":
    unittest.main()
