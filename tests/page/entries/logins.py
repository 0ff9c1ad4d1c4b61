"""More servers of shells, and files, with an account in the run's folder."""

from harness.process import until
from page import Outcome, entry
from page import tools

BOTH = "3 MB down, 3 MB up"
# The prefix of a command with another /etc/passwd.
ACCOUNTS = 'mount --bind "$1" /etc/passwd && shift && exec "$@"'


def accounts(world, name, line):
    """A command prefix under which the account has this line."""
    path = world.folder / "passwd"
    with open("/etc/passwd") as file:
        kept = [other for other in file if not other.startswith(f"{name}:")]
    path.write_text(f"{name}:{line}\n{''.join(kept)}")
    path.chmod(0o644)
    return ["sh", "-c", ACCOUNTS, "sh", str(path)]


@entry(
    "dropbear: shell, scp, forwarding both ways",
    packages="dropbear-bin openssh-client",
    timeout=120,
)
def dropbear(world):
    folder = world.folder / "ssh"
    (folder / ".ssh").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    world.beside("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "user").finish()
    world.beside("dropbearkey", "-t", "ed25519", "-f", folder / "host").finish()
    (folder / ".ssh/authorized_keys").write_bytes((folder / "user.pub").read_bytes())
    words = [tools.sbin("dropbear"), "-F", "-E", "-a", "-r", folder / "host", "-P", folder / "pid"]
    words += ["-p", f"{world.address}:2222"]
    before = accounts(world, "root", f"x:0:0::{folder}:/bin/sh")
    path, back, up = tools.blob(world), world.folder / "back", world.folder / "up"
    options = ["-i", folder / "user", "-F", "/dev/null", "-o", "StrictHostKeyChecking=no"]
    options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    ssh = ["ssh", *options, "-p", 2222, f"root@{world.address}"]
    scp = ["scp", "-O", *options, "-P", 2222]
    tools.digest_server(world, 9000)
    at = f"{world.peer_address}:9000"
    ports = ["-N", "-L", f"127.0.0.1:8000:{at}", "-R", f"{world.address}:8001:{at}"]
    for _ in range(2):
        server = world.stack(*words, before=before)
        world.wait_port(2222, process=server)
        assert world.peer(*ssh, "echo shell; exit").finish(20).strip() == "shell"
        world.peer(*scp, path, f"root@{world.address}:{up}").finish(30)
        world.peer(*scp, f"root@{world.address}:{up}", back).finish(30)
        assert back.read_bytes() == path.read_bytes()
        forward = world.peer(*ssh[:-1], *ports, ssh[-1])
        local, remote = "http://127.0.0.1:8000", f"http://{world.address}:8001"
        asked = lambda: world.peer("curl", "-sS", "--max-time", 3, local).wait() == 0
        until(asked, 15, "the forwarded port answers")
        world.wait_port(8001, process=server)
        # The session goes on when the server has ended.
        for end in (lambda: None, server.stop):
            end()
            for url in (local, remote):
                tools.fetch(world, f"{url}/big.bin", path)
                tools.upload(world, f"{url}/up", path)
        forward.stop()
    return Outcome(f"{BOTH}, by each forwarded port too")


@entry("pure-ftpd: curl and lftp", packages="pure-ftpd lftp", timeout=120)
def pure_ftpd(world):
    root, path = world.folder / "ftp", tools.blob(world)
    (root / "in").mkdir(parents=True)
    (root / "in").chmod(0o777)
    before = accounts(world, "ftp", f"x:65534:65534::{root}:/bin/sh")
    words = [tools.sbin("pure-ftpd"), "-S", f"{world.address},2121", "-e", "-M", "-H", "-A"]
    words += ["-C", 20, "-g", world.folder / "pid"]
    url = f"ftp://{world.address}:2121/in"
    for _ in range(2):
        server = world.stack(*words, before=before)
        world.wait_port(2121, process=server)
        for how in ([], ["-P", "-"], ["--disable-epsv"], ["-P", "-", "--disable-eprt"]):
            world.peer("curl", "-sS", *how, "-T", path, f"{url}/up.bin").finish(25)
            tools.fetch(world, f"{url}/up.bin", path, *how)
            (root / "in/up.bin").unlink()
        for passive in ("true", "false"):
            back = world.folder / "back"
            script = f"set net:max-retries 1; set ftp:passive-mode {passive}; open {url};"
            script += f"put {path} -o up.bin; get up.bin -o {back}"
            world.peer("lftp", "-c", script).finish(30)
            assert back.read_bytes() == path.read_bytes()
            back.unlink()
            (root / "in/up.bin").unlink()
        server.stop()
    return Outcome(f"{BOTH}, passive and active, 12 times")
