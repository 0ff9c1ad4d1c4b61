"""Servers that judge letters and files."""

import os
import signal

from harness.process import descendants, until
from page import Outcome, entry
from page import tools

HEAD = """From: a@page.test
To: b@page.test
Subject: page
Date: Mon, 1 Jan 2024 00:00:00 +0000
Message-Id: <x@page.test>

"""
RULES = """required_score 5
use_bayes 0
body PAGE /pagespam/
score PAGE 10
report_safe 0
add_header all Status _YESNO_
"""
RSPAMD = """options {{
  pidfile = "{folder}/pid";
  filters = "";
  dns {{ nameserver = ["{peer}:53:1"]; timeout = 1s; retransmits = 1; }}
  control_socket = "{folder}/control mode=0600";
  cache_file = "{folder}/cache";
  hs_cache_dir = "{folder}";
  tempdir = "{folder}";
  url_tld = "{folder}/tld";
}}
logging {{ type = "console"; level = "info"; }}
worker "normal" {{ bind_socket = "{address}:11333"; count = 2; task_timeout = 20s; }}
worker "controller" {{ bind_socket = "{address}:11334"; secure_ip = "{peer}";
  password = "page"; static_dir = "{folder}/www"; }}
"""


def letter(world, name, first=""):
    path = world.folder / name
    path.write_text(HEAD + first + "".join(f"{n:05} {'x' * 60}\n" for n in range(3000)))
    return path


def body(text):
    return text.replace("\r", "").partition("\n\n")[2]


def replaced(server, before):
    """Whether all processes below the server are others."""
    now = set(descendants(server.pid))
    return len(now) >= len(before) and not now & before


@entry("spamd and spamc, two children", packages="spamd spamc", timeout=120)
def spamd(world):
    rules, hosts = world.folder / "rules", world.folder / "hosts"
    rules.mkdir()
    (rules / "page.cf").write_text(RULES)
    (rules / "page.pre").write_text("loadplugin Mail::SpamAssassin::Plugin::Check\n")
    # It closes a connection whose client has no name.
    hosts.write_text(f"{world.peer_address} peer\n")
    bind = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
    words = [tools.sbin("spamd"), "-x", "-L", "-C", rules, f"--siteconfigpath={rules}", "-p", 7830]
    words += ["-i", world.address, "-A", world.peer_address, "-m", 2, "--min-children=2"]
    words += ["-r", world.folder / "pid", "-s", "stderr", "-u", "nobody", "-H", world.folder]
    ask = f"spamc -d {world.address} -p 7830 -x -t 20 <"
    letters = (letter(world, "good"), "No"), (letter(world, "bad", "pagespam\n"), "Yes")
    for _ in range(2):
        server = world.stack(*words, before=["sh", "-c", bind, "sh", str(hosts)])
        world.wait_port(7830, 30, process=server)
        for path, verdict in letters * 2:
            for client in [world.peer("sh", "-c", f"{ask} {path}") for _ in range(3)]:
                said = client.finish(30)
                assert f"X-Spam-Status: {verdict}" in said, said[:500]
                assert body(said) == body(path.read_text()), "the letter differs"
            before = set(descendants(server.pid))
            server.signal(signal.SIGHUP)
            until(lambda: replaced(server, before), 20, "the children are replaced")
            world.wait_port(7830, 20, process=server)
        server.stop()
    return Outcome("0.2 MB in and out, 24 times; reloads")


@entry("rspamd and rspamc, two workers", packages="rspamd", timeout=120)
def rspamd(world):
    folder, page = world.folder / "rspamd", tools.blob(world, "rspamd/www/big.bin")
    folder.chmod(0o777)
    (folder / "tld").write_text("com\nnet\ntest\n")
    (folder / "conf").write_text(
        RSPAMD.format(folder=folder, address=world.address, peer=world.peer_address)
    )
    path, at = letter(world, "letter"), f"{world.address}:11333"
    for _ in range(2):
        server = world.stack("rspamd", "-f", "-i", "-c", folder / "conf")
        for port in (11333, 11334):
            world.wait_port(port, 20, process=server)
        for _ in range(2):
            words = ["sh", "-c", f"rspamc -t 20 -h {at} --mime < {path}"]
            for client in [world.peer(*words) for _ in range(4)]:
                assert body(client.finish(30)) == body(path.read_text()), "the letter differs"
            tools.fetch(world, f"http://{world.address}:11334/big.bin", page)
            before = set(descendants(server.pid))
            server.signal(signal.SIGHUP)
            until(lambda: replaced(server, before), 20, "the workers are replaced")
        server.stop()
    return Outcome("0.2 MB up 16 times, 3 MB down; reloads")


@entry("clamd and clamdscan --stream", packages="clamav-daemon clamdscan", timeout=120)
def clamd(world):
    folder = world.folder / "clamd"
    (folder / "db").mkdir(parents=True)
    folder.chmod(0o777)
    mark = os.urandom(16)
    (folder / "db/page.ndb").write_text(f"Page.Test:0:*:{mark.hex()}\n")
    at = f"TCPSocket 3310\nTCPAddr {world.address}\n"
    (folder / "client").write_text(at)
    (folder / "conf").write_text(
        f"{at}DatabaseDirectory {folder}/db\nForeground true\nMaxThreads 4\nBytecode no\n"
        f"LogFile {folder}/log\nPidFile {folder}/pid\n"
    )
    good, bad = tools.blob(world), tools.blob(world, "bad.bin")
    # The last bytes have to come for a verdict.
    bad.write_bytes(bad.read_bytes()[: -len(mark)] + mark)
    scan = ["clamdscan", "--stream", "--no-summary", "-c", folder / "client"]
    for _ in range(2):
        server = world.stack(tools.sbin("clamd"), "-c", folder / "conf")
        world.wait_port(3310, 20, process=server)
        for _ in range(2):
            clients = [(world.peer(*scan, path), path) for path in (good, bad) * 4]
            for client, path in clients:
                assert client.wait(20) == int(path == bad), client.tail()
                assert ("Page.Test.UNOFFICIAL FOUND" in client.output()) == (path == bad)
            server.signal(signal.SIGUSR2)
        server.stop()
    return Outcome("verdicts on 3 MB, 32 times")
