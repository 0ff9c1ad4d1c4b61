"""Reads a shell command and its input by makefile, runs it, and writes what it printed.
Usage: makefile_subprocess.py PORT"""

import socket
import subprocess
import sys

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
while True:
    sock, _ = listener.accept()
    with sock, sock.makefile("r", newline="\n") as lines, sock.makefile("w", newline="\n") as out:
        command = lines.readline().strip()
        if not command:
            continue
        text = ""
        for line in lines:
            if line == "\n":
                break
            text += line
        done = subprocess.run(
            ["sh", "-c", command], input=text, capture_output=True, text=True, check=True
        )
        out.write(done.stdout)
