"""Name servers of one zone: their configurations, for a number of workers."""

PORT = 5353
NAME = "n7.bench.test"
RECORDS = [(f"n{number}.bench.test", f"192.0.2.{number % 250 + 1}") for number in range(1000)]
ZONE = """$ORIGIN bench.test.
$TTL 300
@ SOA ns hostmaster 1 3600 900 604800 300
@ NS ns
ns A 192.0.2.1
""" + "".join(f"{name}. A {address}\n" for name, address in RECORDS)
KNOT = """server:
  rundir: {folder}
  listen: {address}@{port}
  udp-workers: {workers}
  tcp-workers: 1
  background-workers: 1
database:
  storage: {folder}
zone:
  - domain: bench.test
    file: {folder}/bench.zone
    journal-content: none
"""
BIND = """options {{
  directory "{folder}"; pid-file none; session-keyfile none; recursion no;
  listen-on port {port} {{ {address}; }}; listen-on-v6 {{ none; }};
}};
controls {{ }};
zone "bench.test" {{ type primary; file "{folder}/bench.zone"; }};
"""
NSD = """server:
  ip-address: {address}
  port: {port}
  server-count: {workers}
  username: ""
  zonesdir: "{folder}"
  database: ""
  pidfile: ""
  xfrdfile: "{folder}/nsd.xfrd"
  zonelistfile: "{folder}/nsd.list"
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: bench.test
  zonefile: "{folder}/bench.zone"
"""
UNBOUND = """server:
  interface: {address}
  port: {port}
  num-threads: {workers}
  username: ""
  chroot: ""
  do-daemonize: no
  use-syslog: no
  pidfile: ""
  directory: "{folder}"
  access-control: 0.0.0.0/0 allow
  local-zone: "bench.test" static
""" + "".join(f'  local-data: "{name}. A {address}"\n' for name, address in RECORDS)
SERVERS = {
    "knot": (KNOT, ["/usr/sbin/knotd", "-c", "CONF"]),
    "BIND": (BIND, ["/usr/sbin/named", "-g", "-n", "WORKERS", "-c", "CONF"]),
    "nsd": (NSD, ["/usr/sbin/nsd", "-d", "-c", "CONF"]),
    "unbound": (UNBOUND, ["/usr/sbin/unbound", "-d", "-c", "CONF"]),
}


def command(server, workers, address, folder):
    """Writes zone and configuration; returns the words that start the server."""
    text, words = SERVERS[server]
    conf = folder / f"{server}.conf"
    (folder / "bench.zone").write_text(ZONE)
    conf.write_text(text.format(folder=folder, address=address, port=PORT, workers=workers))
    return [{"CONF": str(conf), "WORKERS": str(workers)}.get(word, word) for word in words]
