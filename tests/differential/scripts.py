"""Random sequences of socket calls and packets. Equal seeds give equal sequences."""

import tcp_script
import udp_script

WRITERS = {"tcp": tcp_script.Writer, "udp": udp_script.Writer}


def generate(protocol, seed):
    return WRITERS[protocol](seed).script()
