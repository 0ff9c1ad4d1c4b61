"""Shells, files, mail, and programs that run others."""

import ftplib
import imaplib
import os
import signal
import smtplib
import sys

from harness.process import until
from page import Outcome, entry
from page import tools
from page.ftp import vsftpd_conf
from page.ssh import sshd

BOTH = "3 MB down, 3 MB up"


@entry(
    "sshd: shell, scp, forwarding both ways", packages="openssh-server openssh-client", timeout=120
)
def ssh_server(world):
    server, options = sshd(world, world.stack)
    world.wait_port(2222, process=server)
    path, back = tools.blob(world), world.folder / "back"
    ssh = ["ssh", *options, "-p", 2222, f"root@{world.address}"]
    assert world.peer(*ssh, "echo shell; exit").finish(20).strip() == "shell"
    text = world.peer(
        "sh",
        "-c",
        f"ssh {' '.join(map(str, options))} -p 2222 root@{world.address} sha256sum < {path}",
    ).finish(30)
    assert text.split()[0] == tools.digest(path.read_bytes())
    scp = ["scp", *options, "-P", 2222]
    world.peer(*scp, path, f"root@{world.address}:{world.folder}/up").finish(30)
    world.peer(*scp, f"root@{world.address}:{world.folder}/up", back).finish(30)
    assert back.read_bytes() == path.read_bytes()
    tools.digest_server(world, 9000)
    forward = world.peer(
        "ssh",
        *options,
        "-p",
        2222,
        "-N",
        "-L",
        f"127.0.0.1:8000:{world.peer_address}:9000",
        f"root@{world.address}",
    )
    until(
        lambda: world.peer("curl", "-sS", "--max-time", 3, "http://127.0.0.1:8000/").wait() == 0,
        15,
        "the forwarded port answers",
    )
    tools.fetch(world, "http://127.0.0.1:8000/big.bin", path)
    forward.stop()
    backward = world.peer(
        "ssh",
        *options,
        "-p",
        2222,
        "-N",
        "-R",
        f"{world.address}:8001:{world.peer_address}:9000",
        f"root@{world.address}",
    )
    world.wait_port(8001, process=server)
    tools.fetch(world, f"http://{world.address}:8001/big.bin", path)
    backward.stop()
    rate = tools.calls(world, lambda: world.peer(*ssh, "true").finish(20), 2 * tools.SECONDS)
    return Outcome(BOTH, rate, "logins/s")


@entry("ssh and scp as clients", packages="openssh-server openssh-client", timeout=120)
def ssh_client(world):
    _, options = sshd(world, world.peer)
    world.wait_port(2222, address=world.peer_address)
    path, back = tools.blob(world), world.folder / "back"
    ssh = ["ssh", *options, "-p", 2222, f"root@{world.peer_address}"]
    assert world.stack(*ssh, "echo shell; exit").finish(20).strip() == "shell"
    scp = ["scp", *options, "-P", 2222]
    world.stack(*scp, path, f"root@{world.peer_address}:{world.folder}/up").finish(30)
    world.stack(*scp, f"root@{world.peer_address}:{world.folder}/up", back).finish(30)
    assert back.read_bytes() == path.read_bytes()
    rate = tools.calls(world, lambda: world.stack(*ssh, "true").finish(20), 2 * tools.SECONDS)
    return Outcome(BOTH, rate, "logins/s")


@entry("rsync daemon", packages="rsync")
def rsync(world):
    folder = world.folder / "tree"
    paths = [tools.blob(world, f"tree/{i}.bin", 100_000) for i in range(20)]
    conf = world.folder / "rsyncd.conf"
    conf.write_text(
        "use chroot = no\nreverse lookup = no\nuid = root\ngid = root\npid file ="
        f" {world.folder}/rsync.pid\n[tree]\npath = {folder}\nread only = no\n"
    )
    server = world.stack("rsync", "--daemon", "--no-detach", "--port=8730", f"--config={conf}")
    world.wait_port(8730, process=server)
    into = world.folder / "copy"
    url = f"rsync://{world.address}:8730/tree/"
    world.peer("rsync", "-a", url, into).finish(30)
    assert all((into / path.name).read_bytes() == path.read_bytes() for path in paths)
    more = tools.blob(world, "copy/more.bin", 2_000_000)
    world.peer("rsync", "-a", f"{into}/", url).finish(30)
    assert (folder / "more.bin").read_bytes() == more.read_bytes()
    whole = ["rsync", "-a", "--ignore-times", "--whole-file", url, into]
    rate = 4 * tools.calls(world, lambda: world.peer(*whole).finish(30))
    return Outcome("2 MB down, 2 MB up", rate, "MB/s down")


def ftp(world, port, user, password):
    path = tools.blob(world)
    with world.at_peer():
        with ftplib.FTP(timeout=15) as client:
            client.connect(world.address, port)
            client.login(user, password)
            for passive in (True, False):
                client.set_pasv(passive)
                with open(path, "rb") as file:
                    client.storbinary("STOR up.bin", file)
                got = bytearray()
                client.retrbinary("RETR up.bin", got.extend)
                assert got == path.read_bytes(), f"passive={passive}: bytes differ"
            return Outcome(f"{BOTH}, passive and active", *downloads(world, client, "up.bin"))


def downloads(world, client, name):
    """Megabytes a second of files of 3 MB, each over a connection of its own."""
    client.set_pasv(True)
    rate = tools.calls(world, lambda: client.retrbinary(f"RETR {name}", lambda _: None))
    return 3 * rate, "MB/s down"


@entry("vsftpd", packages="vsftpd")
def vsftpd(world):
    conf = vsftpd_conf(world, anon_other_write_enable="YES", connect_from_port_20="YES")
    server = world.stack(tools.sbin("vsftpd"), conf)
    world.wait_port(2121, process=server)
    path = tools.blob(world)
    with world.at_peer(), ftplib.FTP(timeout=15) as client:
        client.connect(world.address, 2121)
        client.login()
        client.cwd("in")
        for passive in (True, False):
            client.set_pasv(passive)
            name = f"up{int(passive)}.bin"
            with open(path, "rb") as file:
                client.storbinary(f"STOR {name}", file)
            got = bytearray()
            client.retrbinary(f"RETR {name}", got.extend)
            assert got == path.read_bytes(), f"passive={passive}: bytes differ"
        return Outcome(f"{BOTH}, passive and active", *downloads(world, client, name))


@entry("pyftpdlib", packages="python3-pyftpdlib")
def pyftpdlib(world):
    folder = world.folder / "ftp"
    folder.mkdir()
    server = world.stack(
        sys.executable, "-m", "pyftpdlib", "-w", "-p", 2121, "-i", world.address, "-d", folder
    )
    world.wait_port(2121, process=server)
    return ftp(world, 2121, "anonymous", "")


@entry("ncat --keep-open --exec", packages="ncat")
def ncat(world):
    server = world.stack("ncat", "-l", "-k", "-p", 7000, "--exec", "/bin/cat")
    world.wait_port(7000, process=server)
    return tools.echoed(world, 7000, 60_000)


@entry("inetd (openbsd)", packages="openbsd-inetd")
def inetd(world):
    conf = world.folder / "inetd.conf"
    conf.write_text(
        f"{world.address}:7000 stream tcp nowait root /bin/cat cat\n{world.address}:7001 dgram udp"
        f" wait root {sys.executable} python3 {tools.PEER_SERVER.with_name('once.py')}\n"
    )
    server = world.stack(tools.sbin("inetd"), "-d", conf)
    world.wait_port(7000, process=server)
    for number in range(5):
        assert (
            tools.ask_udp(world, world.address, 7001, b"ask%d" % number, 1, 8) == b"ask%d" % number
        )
    return tools.echoed(world, 7000)


@entry("stunnel", packages="stunnel4 openssl")
def stunnel(world):
    pem, _, _ = tools.certificate(world)
    tools.digest_server(world, 9000)
    conf = world.folder / "stunnel.conf"
    conf.write_text(
        f"foreground = yes\npid =\n[web]\naccept = {world.address}:8443\nconnect ="
        f" {world.peer_address}:9000\ncert = {pem}\n"
    )
    server = world.stack("stunnel4", conf)
    world.wait_port(8443, process=server)
    path = tools.blob(world)
    url = f"https://{world.address}:8443"
    tools.fetch(world, f"{url}/big.bin", path)
    tools.upload(world, f"{url}/up", path)
    return Outcome(BOTH, tools.wrk(world, f"{url}/", 8), "requests/s")


@entry("dante (SOCKS)", packages="dante-server curl")
def dante(world):
    base = tools.digest_server(world, 9000)
    conf = world.folder / "danted.conf"
    conf.write_text(
        f"logoutput: stderr\ninternal: {world.address} port = 1080\nexternal:"
        f" {world.address}\nclientmethod: none\nsocksmethod: none\nuser.privileged:"
        " root\nuser.unprivileged: nobody\nclient pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }\nsocks"
        " pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }\n"
    )
    server = world.stack(tools.sbin("danted"), "-f", conf, "-p", world.folder / "pid")
    world.wait_port(1080, process=server)
    path = tools.blob(world)
    proxy = ["-x", f"socks5://{world.address}:1080"]
    tools.fetch(world, f"{base}/big.bin", path, *proxy)
    tools.upload(world, f"{base}/up", path, *proxy)
    return Outcome(BOTH)


DOVECOT = """base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/dovecot.log
protocols = imap
listen = {address}
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{folder}/mail
default_internal_user = dovecot
default_login_user = dovenull
service imap-login {{
  inet_listener imap {{
    port = 1143
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=vmail gid=vmail home={folder}/home
}}
"""


@entry("dovecot (IMAP)", packages="dovecot-imapd")
def dovecot(world):
    folder = world.folder / "dovecot"
    for name in ("run", "mail", "home"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o777)
    folder.chmod(0o755)
    conf = folder / "dovecot.conf"
    conf.write_text(
        DOVECOT.format(folder=folder, address=world.address)
        .replace("vmail", "nobody", 1)
        .replace("gid=vmail", "gid=nogroup")
    )
    server = world.stack(tools.sbin("dovecot"), "-F", "-c", conf)
    world.wait_port(1143, process=server)
    letter = b"Subject: page\r\n\r\n" + os.urandom(200_000).hex().encode() + b"\r\n"
    with world.at_peer():
        for _ in range(5):
            with imaplib.IMAP4(world.address, 1143, timeout=10) as client:
                client.login("someone", "secret")
                client.append("INBOX", None, None, letter)
                client.select()
                _, found = client.search(None, "ALL")
                _, parts = client.fetch(found[0].split()[-1], "(RFC822)")
                assert parts[0][1] == letter, "the letter differs"
        rate = tools.calls(world, lambda: imap_session(world))
    return Outcome("0.4 MB up and down, five sessions", rate, "sessions/s")


def imap_session(world):
    with imaplib.IMAP4(world.address, 1143, timeout=10) as client:
        client.login("someone", "secret")
        client.select()


@entry("postfix (SMTP)", packages="postfix", timeout=120)
def postfix(world):
    folder = world.folder / "postfix"
    conf, queue, data = folder / "conf", folder / "queue", folder / "data"
    for path in (conf, queue, data):
        path.mkdir(parents=True)
    os.chown(data, *tools.owner("postfix"))
    world.folder.chmod(0o755)
    for name in ("master.cf", "dynamicmaps.cf", "postfix-files"):
        source = (
            f"/etc/postfix/{name}"
            if os.path.exists(f"/etc/postfix/{name}")
            else f"/usr/share/postfix/{name}.dist"
        )
        if os.path.exists(source):
            (conf / name).write_bytes(open(source, "rb").read())
    master = [
        line
        for line in (conf / "master.cf").read_text().splitlines()
        if not line.startswith("smtp      inet")
    ]
    (conf / "master.cf").write_text(
        "2525 inet n - n - - smtpd\n"
        + "\n".join(master).replace("  -       y       -", "  -       n       -")
        + "\n"
    )
    (conf / "main.cf").write_text(
        f"compatibility_level = 3.6\nqueue_directory = {queue}\ndata_directory ="
        f" {data}\ninet_interfaces = {world.address}\ninet_protocols = ipv4\nmyhostname ="
        " page.test\nmydestination = page.test\nmynetworks = 0.0.0.0/0\nlocal_recipient_maps"
        " =\nlocal_transport = discard\nmaillog_file = /dev/stdout\nalias_maps"
        " =\nmaillog_file_prefixes = /dev/stdout\n"
    )
    server = world.stack(tools.sbin("postfix"), "-c", conf, "start-fg")
    world.wait_port(2525, 30, process=server)
    letter = "Subject: page\r\n\r\n" + ("x" * 70 + "\r\n") * 10_000
    with world.at_peer(), smtplib.SMTP(world.address, 2525, timeout=20) as client:
        for _ in range(3):
            client.sendmail("a@page.test", ["b@page.test"], letter)
        small = ("a@page.test", ["b@page.test"], letter[:1000])
        rate = tools.calls(world, lambda: client.sendmail(*small))
    os.kill(int((queue / "pid/master.pid").read_text()), signal.SIGTERM)
    server.wait(20)
    return Outcome("0.7 MB in, three times", rate, "letters/s")


@entry("ngircd", packages="ngircd")
def ngircd(world):
    conf = world.folder / "ngircd.conf"
    conf.write_text(
        f"[Global]\nName = irc.page.test\nInfo = x\nListen = {world.address}\nPorts ="
        " 6667\n[Options]\nIdent = no\nPAM = no\nDNS = no\n"
    )
    server = world.stack(tools.sbin("ngircd"), "-n", "-f", conf)
    world.wait_port(6667, process=server)
    socks = []
    for name in (b"anna", b"bert"):
        sock = world.connect(6667)
        sock.sendall(b"NICK %s\r\nUSER %s 0 * :x\r\nJOIN #page\r\n" % (name, name))
        text = b""
        while b" 366 " not in text:
            text += sock.recv(65536)
        socks.append(sock)
    for number in range(10):
        socks[0].sendall(b"PRIVMSG #page :message %d\r\n" % number)
    text = b""
    while b"message 9" not in text:
        text += socks[1].recv(65536)
    for sock in socks:
        sock.close()
    return Outcome("messages between two clients")


@entry("icecast", packages="icecast2")
def icecast(world):
    folder, path = world.folder / "ice", tools.blob(world, "ice/big.bin")
    folder.chmod(0o777)
    conf = world.folder / "icecast.xml"
    conf.write_text(
        "<icecast><hostname>page.test</hostname><limits><clients>20</clients><sources>2</sources></limits>"
        "<authentication><source-password>p</source-password></authentication><listen-socket><port>8000</port></listen-socket>"
        f"<paths><basedir>/</basedir><logdir>{folder}</logdir><webroot>{folder}</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths>"
        "<fileserve>1</fileserve><security><chroot>0</chroot><changeowner><user>nobody</user><group>nogroup</group></changeowner></security></icecast>"
    )
    server = world.stack("icecast2", "-c", conf)
    world.wait_port(8000, process=server)
    tools.fetch(world, f"http://{world.address}:8000/big.bin", path)
    return Outcome("a file of 3 MB down")
