"""Debian's dovecot: a login process hands each connection to one that serves the mailbox, and
ends."""

import contextlib
import imaplib
import os
import shutil
from pathlib import Path

from harness import Skip, test

DOVECOT = "/usr/sbin/dovecot"
PORT = 1143
MAIL = "From: a@example.org\r\nSubject: {number}\r\n\r\n" + "a line of a mail\r\n" * 2000

CONF = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = {address}
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{folder}/mail/%u
default_internal_user = nobody
default_internal_group = nogroup
default_login_user = www-data
first_valid_uid = 1
import_environment = LD_PRELOAD
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={folder}/mail/%u
}}
service imap-login {{
  {login}
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service stats {{
  chroot =
}}
"""


@contextlib.contextmanager
def server(world, login=""):
    if not os.path.exists(DOVECOT):
        raise Skip("dovecot is not installed")
    folder = world.folder / "dovecot"
    folder.mkdir(mode=0o755)
    new = folder / "mail" / "user" / "new"
    new.mkdir(parents=True)
    for number in range(3):
        (new / f"{number}.mail").write_text(MAIL.format(number=number))
    for path in [folder / "mail", *(folder / "mail").rglob("*")]:
        shutil.chown(path, "nobody", "nogroup")
    for path in [*folder.parents]:
        if path != Path("/") and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o755)
    conf = folder / "dovecot.conf"
    conf.write_text(CONF.format(folder=folder, address=world.address, port=PORT, login=login))
    started = world.stack(DOVECOT, "-F", "-c", conf)
    world.wait_port(PORT, process=started)
    yield folder


def session(world):
    with world.at_peer():
        imap = imaplib.IMAP4(world.address, PORT, timeout=10)
    imap.login("user", "secret")
    assert imap.select()[1] == [b"3"]
    for number in range(1, 4):
        _, data = imap.fetch(str(number), "(RFC822)")
        assert data[0][1].decode().endswith("a line of a mail\r\n" * 2000)
    imap.logout()


@test
def dovecot_serves_mailboxes(world):
    with server(world) as folder:
        try:
            for _ in range(20):
                session(world)
        except Exception:
            print((folder / "log").read_text())
            raise


@test
def dovecot_serves_mailboxes_with_login_processes_that_stay(world):
    with server(world, "service_count = 0"):
        for _ in range(3):
            session(world)
