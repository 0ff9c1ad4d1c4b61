"""Random sequences of socket calls and packets. The same seed is the same sequence."""

import tcp_script
import udp_script

WRITERS = {"tcp": tcp_script.Writer, "udp": udp_script.Writer}


def generate(protocol, seed):
    return WRITERS[protocol](seed).script()
