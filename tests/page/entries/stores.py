"""Caches, queues and databases."""

import os
import re
import time

from harness.process import until
from page import Outcome, entry
from page import tools

BOTH = "1 MB in, 1 MB out"
# mosquitto's of one measurement.
MESSAGES = 20_000


def memcached(world, threads):
    server = world.stack("memcached", "-u", "root", "-t", threads, "-p", 11211, "-I", "4m")
    world.wait_port(11211, process=server)
    value = os.urandom(1_000_000)
    with world.connect(11211) as sock:
        sock.sendall(b"set big 0 0 %d\r\n" % len(value) + value + b"\r\n")
        assert tools.receive(sock, 8) == b"STORED\r\n"
        sock.sendall(b"get big\r\n")
        expected = b"VALUE big 0 %d\r\n" % len(value) + value + b"\r\nEND\r\n"
        assert tools.receive(sock, len(expected)) == expected
    text = tools.measure(world, *world_bench(world, "memcached", 11211, 8), seconds=30)
    return Outcome(BOTH, float(text), "gets/s")


def world_bench(world, kind, port, connections):
    return [
        "/usr/bin/python3",
        "-u",
        tools.PEER_SERVER.with_name("asker.py"),
        kind,
        world.address,
        port,
        connections,
        tools.SECONDS,
    ]


@entry("memcached, one thread", packages="memcached")
def memcached_one(world):
    return memcached(world, 1)


@entry("memcached, four threads", packages="memcached")
def memcached_four(world):
    return memcached(world, 4)


def redis(world, *options, count=60_000):
    server = world.stack(
        "redis-server",
        "--port",
        6379,
        "--save",
        "",
        "--protected-mode",
        "no",
        *options,
        cwd=world.folder,
    )
    world.wait_port(6379, process=server)
    value = os.urandom(1_000_000)
    with world.connect(6379) as sock:
        sock.sendall(
            b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n" % len(value)
            + value
            + b"\r\n*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n"
        )
        expected = b"+OK\r\n$%d\r\n" % len(value) + value + b"\r\n"
        assert tools.receive(sock, len(expected)) == expected
    words = ["redis-benchmark", "-h", world.address, "-q", "-t", "get", "-n", count, "-c", 16]
    text = tools.measure(world, *words, "--csv", seconds=60)
    return Outcome(BOTH, float(text.splitlines()[-1].split(",")[1].strip('"')), "gets/s")


@entry("redis", packages="redis-server redis-tools")
def redis_one(world):
    return redis(world)


@entry("redis, io-threads 2", packages="redis-server redis-tools")
def redis_threads(world):
    return redis(world, "--io-threads", 2, "--io-threads-do-reads", "yes", count=4000)


@entry("redis, a loop in Lua", packages="redis-server redis-tools")
def redis_lua(world):
    """A program that computes: what our library does to its memory must not slow its loops down."""
    server = world.stack("redis-server", "--port", 6379, "--protected-mode", "no", cwd=world.folder)
    world.wait_port(6379, process=server)
    count, loops = 3_000_000, 0
    asked = f"EVAL 'local n = 0 for i = 1, {count} do n = n + i end return n' 0\r\n".encode()
    expected = b":%d\r\n" % (count * (count + 1) // 2)
    with world.connect(6379) as sock:
        began = time.monotonic()
        while time.monotonic() - began < tools.SECONDS:
            sock.sendall(asked)
            assert tools.receive(sock, len(expected)) == expected
            loops += count
        rate = loops / (time.monotonic() - began) / 1e6
    return Outcome("sums compared", rate, "million rounds/s")


def as_user(user):
    return ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]


@entry("PostgreSQL, pgbench -S", packages="postgresql-15 postgresql-contrib", timeout=150)
def postgresql_eight(world):
    return postgresql(world, 8)


@entry("PostgreSQL, one client", packages="postgresql-15 postgresql-contrib", timeout=150)
def postgresql_one(world):
    return postgresql(world, 1)


@entry("PostgreSQL, 32 clients", packages="postgresql-15 postgresql-contrib", timeout=150)
def postgresql_many(world):
    return postgresql(world, 32)


def postgresql(world, clients):
    bin_, data = "/usr/lib/postgresql/15/bin", world.folder / "pg"
    data.mkdir()
    os.chown(data, *tools.owner("postgres"))
    world.beside(
        *as_user("postgres"), f"{bin_}/initdb", "-D", data, "-A", "trust", "-N", cwd="/"
    ).finish(60)
    (data / "pg_hba.conf").write_text("host all all 0.0.0.0/0 trust\nlocal all all trust\n")
    words = [
        f"{bin_}/postgres",
        "-D",
        data,
        "-c",
        "listen_addresses=0.0.0.0",
        "-c",
        f"unix_socket_directories={data}",
        "-c",
        "fsync=off",
    ]
    # The library stays with the program beyond the change of user.
    server = (
        world.stack(*words, before=as_user("postgres") if world.mode == "kernel" else (), cwd="/")
        if world.mode == "kernel"
        else world.stack(*as_user("postgres"), *words, cwd="/")
    )
    world.wait_port(5432, 30, process=server)
    host = ["-h", world.address, "-U", "postgres"]
    until(lambda: world.peer(f"{bin_}/pg_isready", *host).wait() == 0, 30, "PostgreSQL is ready")
    text = world.peer(
        f"{bin_}/psql",
        *host,
        "-At",
        "-c",
        (
            "select md5(string_agg(md5(i::text), '')), length(string_agg(md5(i::text), '')) from"
            " generate_series(1, 30000) i"
        ),
    ).finish()
    assert "|960000" in text, text
    big = "x" * 300_000
    script = world.folder / "up.sql"
    script.write_text(f"select length('{big}');")
    assert world.peer(f"{bin_}/psql", *host, "-At", "-f", script).finish().strip() == "300000"
    down = (
        world.peer(f"{bin_}/psql", *host, "-At", "-c", "select repeat('y', 900000)")
        .finish()
        .strip()
    )
    assert down == "y" * 900_000
    world.peer(f"{bin_}/pgbench", *host, "-i", "-q", "-s", 1, "postgres").finish(60)
    words = [f"{bin_}/pgbench", *host, "-S", "-n", "-c", clients, "-T", tools.SECONDS, "postgres"]
    text = tools.measure(world, *words, seconds=40)
    return Outcome(
        "0.3 MB in, 0.9 MB out", float(re.search(r"tps = ([\d.]+)", text)[1]), "transactions/s"
    )


@entry("MariaDB, 8 clients", packages="mariadb-server mariadb-client", timeout=150)
def mariadb(world):
    data = world.folder / "maria"
    world.beside(
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={data}",
        "--auth-root-authentication-method=normal",
        "--user=root",
        "--skip-test-db",
    ).finish(90)
    sql = world.folder / "init.sql"
    sql.write_text("CREATE USER 'page'@'%';\nGRANT ALL ON *.* TO 'page'@'%';\n")
    words = [
        "--no-defaults",
        f"--datadir={data}",
        "--user=root",
        "--bind-address=0.0.0.0",
        f"--socket={data}/s",
        "--skip-name-resolve",
        "--max-allowed-packet=16M",
    ]
    server = world.stack(
        tools.sbin("mariadbd"), *words, f"--init-file={sql}", f"--pid-file={data}/pid"
    )
    world.wait_port(3306, 60, process=server)
    client = [
        "mariadb",
        "--no-defaults",
        "-h",
        world.address,
        "-u",
        "page",
        "--max-allowed-packet=16M",
        "-N",
        "-B",
    ]
    until(lambda: world.peer(*client, "-e", "select 1").wait() == 0, 30, "MariaDB answers")
    down = world.peer(*client, "-e", "select repeat('y', 900000)").finish().strip()
    assert down == "y" * 900_000
    script = world.folder / "up.sql"
    script.write_text(f"select length('{'x' * 900_000}');")
    assert world.peer(*client, "-e", f"source {script}").finish().strip() == "900000"
    words = [
        "mariadb-slap",
        "--no-defaults",
        "-h",
        world.address,
        "-u",
        "page",
        "--concurrency=8",
        "--number-of-queries=20000",
        "--query=select 1",
        "--csv",
    ]
    text = tools.measure(world, *words, "--create-schema=mysql", seconds=60)
    return Outcome(
        "0.9 MB in, 0.9 MB out",
        20000 / float(text.strip().splitlines()[-1].split(",")[2]),
        "queries/s",
    )


@entry("beanstalkd", packages="beanstalkd")
def beanstalkd(world):
    server = world.stack("beanstalkd", "-l", "0.0.0.0", "-p", 11300, "-z", 2_000_000)
    world.wait_port(11300, process=server)
    value = os.urandom(1_000_000)
    with world.connect(11300) as sock:
        sock.sendall(b"put 0 0 60 %d\r\n" % len(value) + value + b"\r\n")
        assert tools.receive(sock, 12) == b"INSERTED 1\r\n"
        sock.sendall(b"reserve\r\n")
        expected = b"RESERVED 1 %d\r\n" % len(value) + value + b"\r\n"
        assert tools.receive(sock, len(expected)) == expected

        def call():
            sock.sendall(b"stats-job 1\r\n")
            assert sock.recv(4096).startswith(b"OK")

        return Outcome(BOTH, tools.calls(world, call), "calls/s")


@entry("mosquitto", packages="mosquitto mosquitto-clients")
def mosquitto(world):
    conf = world.folder / "mosquitto.conf"
    conf.write_text(
        "listener 1883 0.0.0.0\nallow_anonymous true\nuser root\n"
        f"max_queued_messages {MESSAGES}\n"
    )
    server = world.stack(tools.sbin("mosquitto"), "-c", conf)
    world.wait_port(1883, process=server)
    path = tools.blob(world, "message.bin", 1_000_000)
    listener = subscribed(world, "page", 1, "-N")
    world.peer("mosquitto_pub", "-h", world.address, "-t", "page", "-q", 1, "-f", path).finish(20)
    listener.wait(20)
    assert path.read_bytes() in listener.out.read_bytes(), "the message differs"
    lines = world.folder / "lines"
    lines.write_text("".join(f"message {number}\n" for number in range(MESSAGES)))
    listener = subscribed(world, "lines", MESSAGES)
    start = time.monotonic()
    publish = f"mosquitto_pub -h {world.address} -t lines -q 1 -l <{lines}"
    tools.measure(world, "sh", "-c", publish, seconds=40)
    listener.wait(20)
    rate = MESSAGES / (time.monotonic() - start)
    assert f"message {MESSAGES - 1}\n" in listener.output(), "the last message is missing"
    return Outcome(BOTH, rate, "messages/s")


def subscribed(world, topic, count, *options):
    """A client that ends after so many messages."""
    words = ["mosquitto_sub", "-h", world.address, "-t", topic, "-C", count, "-q", 1, "-d"]
    listener = world.peer("stdbuf", "-oL", *words, *options)
    until(
        lambda: "SUBACK" in listener.output() or not listener.is_running(),
        10,
        "the subscription holds",
    )
    return listener


@entry("NATS", packages="nats-server")
def nats(world):
    server = world.stack(tools.sbin("nats-server"), "-a", world.address, "-p", 4222)
    world.wait_port(4222, process=server)
    value = os.urandom(500_000)
    with world.connect(4222) as sock:
        sock.sendall(
            b'CONNECT {"verbose":false}\r\nSUB page 1\r\nPUB page %d\r\n' % len(value)
            + value
            + b"\r\n"
        )
        got = b""
        while not got.endswith(value + b"\r\n"):
            part = sock.recv(262_144)
            assert part, "the connection ended"
            got += part
    return Outcome("0.5 MB in, 0.5 MB out")


@entry("slapd", packages="slapd ldap-utils")
def slapd(world):
    folder = world.folder / "ldap"
    (folder / "db").mkdir(parents=True)
    conf = folder / "slapd.conf"
    conf.write_text(
        "include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload"
        " back_mdb\ndatabase mdb\nsuffix dc=page\nrootdn cn=admin,dc=page\nrootpw"
        f" secret\ndirectory {folder}/db\nmaxsize 67108864\n"
    )
    server = world.stack(tools.sbin("slapd"), "-d", 0, "-f", conf, "-h", "ldap://0.0.0.0:3890")
    world.wait_port(3890, process=server)
    url = ["-x", "-H", f"ldap://{world.address}:3890"]
    ldif = folder / "page.ldif"
    people = "".join(
        f"dn: cn=p{i},dc=page\nobjectClass: person\ncn: p{i}\nsn: {i}\ndescription:"
        f" {'x' * 900}{i}\n\n"
        for i in range(400)
    )
    ldif.write_text(
        "dn: dc=page\nobjectClass: dcObject\nobjectClass: organization\ndc: page\no: page\n\n"
        + people
    )
    world.peer("ldapadd", *url, "-D", "cn=admin,dc=page", "-w", "secret", "-f", ldif).finish(40)
    text = world.peer(
        "ldapsearch", *url, "-LLL", "-o", "ldif-wrap=no", "-b", "dc=page", "(sn=*)", "description"
    ).finish(20)
    assert all(f"description: {'x' * 900}{i}\n" in text for i in range(400)), "entries differ"
    return Outcome("0.4 MB in, 0.4 MB out")


@entry("gearmand", packages="gearman-job-server gearman-tools")
def gearman(world):
    server = world.stack(
        tools.sbin("gearmand"), "-L", "0.0.0.0", "-p", 4730, "-l", "stderr", "-u", "root"
    )
    world.wait_port(4730, process=server)
    world.peer("gearman", "-h", world.address, "-w", "-f", "hash", "sha256sum")
    path = tools.blob(world, "job.bin", 500_000)
    answer = world.peer("sh", "-c", f"gearman -h {world.address} -f hash < {path}").finish(20)
    assert answer.split()[0] == tools.digest(path.read_bytes()), answer
    return Outcome("0.5 MB in, out to a worker")


@entry("PgBouncer, three clients' connections in one", packages="pgbouncer postgresql-15")
def pgbouncer(world):
    bin_, data = "/usr/lib/postgresql/15/bin", world.folder / "pg"
    data.mkdir()
    os.chown(data, *tools.owner("postgres"))
    user = as_user("postgres")
    world.beside(*user, f"{bin_}/initdb", "-D", data, "-A", "trust", "-N", cwd="/").finish(60)
    (data / "pg_hba.conf").write_text("host all all 0.0.0.0/0 trust\nlocal all all trust\n")
    words = [f"{bin_}/postgres", "-D", data, "-c", "listen_addresses=0.0.0.0"]
    words += ["-c", f"unix_socket_directories={data}", "-c", "fsync=off"]
    world.peer(*user, *words, cwd="/")
    conf = world.folder / "pgbouncer.ini"
    conf.write_text(
        f"[databases]\n* = host={world.peer_address} user=postgres pool_size=1\n[pgbouncer]\n"
        f"listen_addr = {world.address}\nlisten_port = 6432\nauth_type = any\n"
        "pool_mode = transaction\nunix_socket_dir =\nmax_client_conn = 50\n"
    )
    conf.chmod(0o644)
    server = world.stack(*user, tools.sbin("pgbouncer"), conf, cwd="/")
    world.wait_port(6432, 30, process=server)
    psql = [f"{bin_}/psql", "-h", world.address, "-p", 6432, "-U", "postgres", "-At", "-c"]
    until(lambda: world.peer(*psql, "select 1", "postgres").wait() == 0, 30, "it answers")
    asked = "select length('{}'), repeat('y', 900000)"
    asks = [world.peer(*psql, asked.format("x" * 90_000), "postgres") for _ in range(3)]
    for client in asks:
        assert client.finish(30).strip() == "90000|" + "y" * 900_000
    return Outcome("0.3 MB in, 2.7 MB out")


@entry("Redis Sentinel, a failover", packages="redis-server redis-tools", timeout=120)
def sentinel(world):
    """The master, its replica and the sentinel are all on the stack, at one address."""
    common = ["--protected-mode", "no", "--save", "", "--bind", world.address]
    folders = [world.folder / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    first = world.stack("redis-server", "--port", 6379, *common, cwd=folders[0])
    world.wait_port(6379, process=first)
    follows = ["--replicaof", world.address, 6379]
    second = world.stack("redis-server", "--port", 6380, *common, *follows, cwd=folders[1])
    world.wait_port(6380, process=second)
    conf = folders[2] / "sentinel.conf"
    conf.write_text(
        f"port 26379\nbind {world.address}\nprotected-mode no\n"
        f"sentinel monitor page {world.address} 6379 1\n"
        "sentinel down-after-milliseconds page 1000\nsentinel failover-timeout page 4000\n"
    )
    third = world.stack("redis-server", conf, "--sentinel", cwd=folders[2])
    world.wait_port(26379, process=third)

    def ask(port, *words):
        return world.peer("redis-cli", "-h", world.address, "-p", port, *words).finish().strip()

    value = os.urandom(20_000).hex()
    ask(6379, "set", "k", value)
    until(lambda: ask(6380, "get", "k") == value, 15, "the replica has the value")
    until(
        lambda: "num-slaves 1" in " ".join(ask(26379, "sentinel", "master", "page").split()),
        20,
        "the sentinel knows the replica",
    )
    first.kill()
    until(lambda: "master" in ask(6380, "role").split()[:1], 30, "the replica is promoted")
    named = ["sentinel", "get-master-addr-by-name", "page"]
    until(
        lambda: ask(26379, *named).split() == [world.address, "6380"], 20, "the sentinel names it"
    )
    ask(6380, "set", "k", value + "more")
    assert ask(6380, "get", "k") == value + "more"
    return Outcome("a value of 40 kB, on both")
