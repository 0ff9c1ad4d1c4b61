"""git in each of its transports, as a server and as a client."""

import itertools

from page import Outcome, entry
from page import tools
from page.ssh import sshd

BOTH = "1 MB down, 1 MB up"
GIT = ["git", "-c", "init.defaultBranch=main", "-c", "user.name=a", "-c", "user.email=a@b"]
GIT += ["-c", "safe.directory=*"]
HTTP = """daemon off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/tmp-body;
    proxy_temp_path {folder}/tmp-proxy;
    fastcgi_temp_path {folder}/tmp-fastcgi;
    uwsgi_temp_path {folder}/tmp-uwsgi;
    scgi_temp_path {folder}/tmp-scgi;
    server {{
        listen {address}:8080;
        location / {{
            client_max_body_size 9m;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME /usr/lib/git-core/git-http-backend;
            fastcgi_param GIT_PROJECT_ROOT {folder};
            fastcgi_param GIT_HTTP_EXPORT_ALL "";
            fastcgi_param PATH_INFO $uri;
            fastcgi_pass {address}:9001;
        }}
    }}
}}
"""


class Repository:
    """A bare repository with one file, which `start` runs clients of."""

    def __init__(self, world, start):
        self.world, self.start = world, start
        self.bare, self.source = world.folder / "bare.git", world.folder / "source"
        self.env = {"HOME": world.folder, "GIT_CONFIG_NOSYSTEM": "1"}
        self.blob = tools.blob(world, "source/big.bin", 1_000_000)
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
            self.git(world.beside, *words, cwd=self.source)
        self.git(world.beside, "clone", "-q", "--bare", self.source, self.bare)
        self.git(world.beside, "config", "http.receivepack", "true", cwd=self.bare)

    def git(self, start, *words, **keywords):
        """Runs git; returns the process, which has ended."""
        process = start(*GIT, *words, env=self.env, **keywords)
        process.finish(30)
        return process

    def exchange(self, url):
        """Clones, pushes another file, and compares both."""
        clone, names = self.world.folder / "clone", itertools.count()
        self.git(self.start, "clone", "-q", url, clone)
        assert (clone / "big.bin").read_bytes() == self.blob.read_bytes(), "cloned bytes differ"
        more = tools.blob(self.world, "clone/more.bin", 1_000_000)
        for words in (["add", "."], ["commit", "-q", "-m", "two"]):
            self.git(self.world.peer, *words, cwd=clone)
        self.git(self.start, "push", "-q", "origin", "main", cwd=clone)
        shown = self.git(self.world.beside, "cat-file", "blob", "main:more.bin", cwd=self.bare)
        assert shown.out.read_bytes() == more.read_bytes(), "pushed bytes differ"

        def clone_again():
            self.git(self.start, "clone", "-q", "--bare", url, f"{clone}{next(names)}")

        rate = tools.calls(self.world, clone_again, 2 * tools.SECONDS)
        return Outcome(BOTH, rate, "clones/s")


def over_git(world, start, address, repository):
    words = ["--reuseaddr", "--export-all", "--enable=receive-pack"]
    words += [f"--base-path={world.folder}", world.folder]
    server = start("git", "daemon", *words, env=repository.env)
    world.wait_port(9418, address=address, process=server)
    return repository.exchange(f"git://{address}/bare.git")


def over_http(world, start, address, repository):
    """nginx, fcgiwrap behind it over TCP, and git's own program for it."""
    behind = start(tools.sbin("fcgiwrap"), "-s", f"tcp:{address}:9001")
    world.wait_port(9001, address=address, process=behind)
    conf = world.folder / "nginx.conf"
    conf.write_text(HTTP.format(folder=world.folder, address=address))
    server = start(tools.sbin("nginx"), "-c", conf, "-p", world.folder)
    world.wait_port(8080, address=address, process=server)
    return repository.exchange(f"http://{address}:8080/bare.git")


def over_ssh(world, start, address, repository):
    server, options = sshd(world, start)
    world.wait_port(2222, address=address, process=server)
    repository.env["GIT_SSH_COMMAND"] = f"ssh {' '.join(map(str, options))}"
    return repository.exchange(f"ssh://root@{address}:2222{repository.bare}")


def serve(world, transport):
    return transport(world, world.stack, world.address, Repository(world, world.peer))


def ask(world, transport):
    return transport(world, world.peer, world.peer_address, Repository(world, world.stack))


@entry("git daemon", packages="git")
def git(world):
    return serve(world, over_git)


@entry("git over http: nginx, fcgiwrap", packages="git nginx-light fcgiwrap")
def git_http(world):
    return serve(world, over_http)


@entry("git over ssh", packages="git openssh-server openssh-client")
def git_ssh(world):
    return serve(world, over_ssh)


@entry("git as a client", packages="git")
def git_client(world):
    return ask(world, over_git)


@entry("git as a client of http", packages="git nginx-light fcgiwrap")
def git_http_client(world):
    return ask(world, over_http)


@entry("git as a client of ssh", packages="git openssh-server openssh-client")
def git_ssh_client(world):
    return ask(world, over_ssh)
