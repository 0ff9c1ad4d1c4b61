"""Clients that send datagrams."""

import socket
import time


def numbered(sock, to, count, gap=0.005):
    """Sends numbered datagrams, one after the other; returns the answering process of each that is
    answered."""
    for number in range(count):
        sock.sendto(b"%d" % number, to)
        time.sleep(gap)
    answers = {}
    sock.settimeout(3)
    while len(answers) < count:
        try:
            data, peer = sock.recvfrom(2048)
        except socket.timeout:
            break
        pid, number = map(int, data.split())
        assert peer == to and number not in answers, (peer, number)
        answers[number] = pid
    return answers
