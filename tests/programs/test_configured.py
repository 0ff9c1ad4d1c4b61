"""`slipstack reload`: a running stack becomes what its configuration file says now, whole or not at all."""

import json

from harness import test

OTHER = "10.77.0.50"


def configured(world, **options):
    """Writes the file: the stack as it was started, and what comes beside it."""
    options = {"if": "eth1", "ip": f"{world.STACK}/24", "gw": world.PEER, **options}
    lines = [f'{name} = {json.dumps(value)}\n' for name, value in options.items()]
    file = world.folder / "slipstack.toml"
    file.write_text("".join(lines))
    return file


def is_answered(client):
    client.sendall(b"x" * 100)
    return client.makefile("rb").read(100) == b"x" * 100


def addresses(world):
    return {it["local"] for link in json.loads(world.admin("ip", "-json", "addr").finish()) for it in link["addr_info"]}


@test(modes=("inprocess", "instance"))
def a_reload_changes_what_differs_and_ends_no_connection_whose_address_stays(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    reload = lambda *words: world.admin("reload", "--config", world.folder / "slipstack.toml", *words).finish()
    configured(world)
    assert reload() == "nothing changes\n"
    configured(world, ip=f"{world.STACK}/24,{OTHER}/32", route=f"10.9.0.0/16,via={world.PEER}", sysctl="net.ipv4.tcp_fin_timeout=31")
    with world.connect(8000) as kept:
        assert is_answered(kept)
        would = reload("--dry-run").splitlines()
        lines = [f"+ address {OTHER}/32 on eth1", f"+ route 10.9.0.0/16 via {world.PEER} table 254"]
        assert would[:2] == lines and len(would) == 3, would
        assert addresses(world) == {world.STACK}
        assert reload().splitlines() == would
        assert addresses(world) == {world.STACK, OTHER} and reload() == "nothing changes\n"
        assert "10.9.0.0/16" in world.admin("ip", "route").finish()
        assert world.admin("sysctl", "-n", "net.ipv4.tcp_fin_timeout").finish() == "31\n"
        with world.connect(8000, address=OTHER) as client:
            assert is_answered(client) and is_answered(kept)
        # A command's change that the file does not have is undone.
        world.admin("ip", "addr", "add", "10.77.0.51/32", "dev", "eth1").finish()
        configured(world)
        gone = json.loads(reload("--json"))
        assert sorted(it["DelAddress"]["ip"] for it in gone if "DelAddress" in it) == [OTHER, "10.77.0.51"], gone
        assert addresses(world) == {world.STACK} and is_answered(kept)
        assert "10.9.0.0/16" not in world.admin("ip", "route").finish()


@test(modes=("inprocess", "instance"))
def a_configuration_that_cannot_be_changes_nothing(world):
    server = world.stack(*world.program("aborted.py"), 8000)
    world.wait_port(8000, process=server)
    before = world.admin("ip", "-json", "addr").finish(), world.admin("ip", "-json", "route").finish()
    table = [
        ({"ip": f"{world.STACK}/24,{OTHER}/32", "route": "10.9.0.0/16,via=192.0.2.1"}, "invalid gateway; nothing was changed"),
        ({"ipp": OTHER}, "ipp"),
        ({"ip": "10.77.0.2.3"}, "10.77.0.2.3"),
    ]
    with world.connect(8000) as kept:
        for options, word in table:
            refused = world.admin("reload", "--config", configured(world, **options))
            assert refused.wait(10) == 1 and word in refused.errors(), refused.tail()
            after = world.admin("ip", "-json", "addr").finish(), world.admin("ip", "-json", "route").finish()
            assert before == after and is_answered(kept), options
