"""A server of SSH with keys of its own."""

import os

from . import tools


def sshd(world, start):
    """Starts it with `start` on port 2222; returns it and the options of its clients."""
    folder = world.folder / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        world.beside("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name).finish()
    (folder / "keys").write_bytes((folder / "user.pub").read_bytes())
    conf = folder / "sshd_config"
    conf.write_text(
        f"Port 2222\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/keys\nStrictModes"
        f" no\nPidFile {folder}/pid\nUsePAM no\nPermitRootLogin yes\nSubsystem sftp"
        " internal-sftp\nGatewayPorts clientspecified\n"
    )
    os.makedirs("/run/sshd", exist_ok=True)
    server = start(tools.sbin("sshd"), "-D", "-e", "-f", conf)
    options = ["-i", folder / "user", "-F", "/dev/null", "-o", "StrictHostKeyChecking=no"]
    options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    return server, options
