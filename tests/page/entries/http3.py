"""HTTP/3, by programs of Debian 13 in a chroot."""

from harness.process import until
from page import Outcome, entry, tools, trixie

PORT = 8443
CONF = """
user www-data;
worker_processes 2;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/tmp-body;
    proxy_temp_path {folder}/tmp-proxy;
    fastcgi_temp_path {folder}/tmp-fastcgi;
    uwsgi_temp_path {folder}/tmp-uwsgi;
    scgi_temp_path {folder}/tmp-scgi;
    ssl_certificate {cert};
    ssl_certificate_key {key};
    server {{
        listen {address}:{port} quic reuseport;
        listen {address}:{port} ssl;
        root {folder}/www;
        location = /worker {{ return 200 "$pid $http3\\n"; }}
        location /up {{ client_max_body_size 9m; proxy_pass {upstream}; }}
    }}
}}
"""
ASKED = 12


def curl(world, *words):
    command = [*trixie.entering(world), *trixie.inside("curl", "-sS", "-k", "--fail")]
    url = f"https://{world.address}:{PORT}"
    return world.peer(*command, "--http3-only", "--max-time", 20, *words[:-1], url + words[-1])


@entry("nginx, HTTP/3, two workers", packages="debootstrap", own=trixie.own("nginx"))
def nginx_http3(world):
    upstream = tools.digest_server(world, 9000)
    _, key, cert = tools.certificate(world)
    folder = world.folder / "nginx"
    path = tools.blob(world, "nginx/www/big.bin")
    folder.chmod(0o755)
    conf = folder / "nginx.conf"
    conf.write_text(
        CONF.format(
            folder=folder,
            key=key,
            cert=cert,
            address=world.address,
            port=PORT,
            upstream=upstream,
        )
    )
    server = world.stack(
        *trixie.inside("nginx", "-c", conf, "-p", folder), before=trixie.entering(world)
    )
    world.wait_port(PORT, process=server)
    into = world.folder / "fetched"
    curl(world, "-o", into, "/big.bin").finish(25)
    assert tools.digest(into.read_bytes()) == tools.digest(path.read_bytes()), "bytes differ"
    answer = curl(world, "--data-binary", f"@{path}", "/up").finish(25)
    assert answer.strip() == tools.digest(path.read_bytes()), "sent bytes differ"
    workers = set()
    for _ in range(ASKED):
        pid, protocol = curl(world, "/worker").finish(25).split()
        assert protocol == "h3", protocol
        workers.add(pid)
    until(lambda: len(workers) == 2, 0.1, "answers of both workers")
    return Outcome("3 MB down, 3 MB up, both workers")
