"""Programs that attach to a stack that already runs, or is about to end."""

import time

from harness import test
from harness.process import until
from harness.tagged import CUSTOMER, Wire


def started(world, port, *options):
    server = world.stack(*world.program("udp_echo.py"), port, options=options)
    until(lambda: "reached at" in server.errors() or not server.is_running(), 10, "it is up")
    assert server.is_running(), server.tail()
    return server


@test(modes=("inprocess",))
def two_programs_use_two_vlans_of_one_port(world):
    """The second program adds its VLAN, with the gateway's table, to the stack of the first."""
    started(world, 7000, "--vlan", "10,ip=10.10.10.5/24,gw=10.10.10.1")
    started(world, 7001, "--vlan", "20,ip=10.10.20.5/24,gw=10.10.20.1")
    for vlan, port in ((10, 7000), (20, 7001)):
        # The gateway, by which answers leave.
        wire = Wire(world, f"10.10.{vlan}.1")
        assert wire.asks(CUSTOMER, vlan, f"10.10.{vlan}.5") == (CUSTOMER, vlan)
        # The program binds later than the line that it is reached is written.
        until(
            lambda: wire.datagram(CUSTOMER, vlan, f"10.10.{vlan}.5", port) == vlan,
            10,
            f"VLAN {vlan} is answered in",
        )
    routes = world.admin("ip", "route", "show", "table", "20").finish()
    assert routes.startswith("default via 10.10.20.1 dev eth1.20"), routes
    assert "from 10.10.20.5 lookup 20" in world.admin("ip", "rule").finish()
    # What is not a VLAN of its own stays a contradiction.
    refused = world.stack("true", options=["--ip", "10.77.0.3/24", "--vlan", "30,ip=10.30.0.5/24"])
    assert refused.wait() == 1 and "has the address" in refused.errors(), refused.tail()
    assert "eth1.30" not in world.admin("ip", "link").finish()
    # A device is opened once.
    refused = world.stack("true", options=["--no-tso"])
    assert refused.wait() == 1 and "was started without --no-tso" in refused.errors()
    refused = world.stack("true", options=["--spread", "turns"])
    why = "was started with --spread hash, not turns"
    assert refused.wait() == 1 and why in refused.errors(), refused.tail()
    joined = world.stack("true", options=["--slots", "8"])
    told = "; its stack was started with 16 slots, not 8"
    assert joined.wait() == 0 and told in joined.errors(), joined.tail()


@test(modes=("inprocess",))
def a_stack_that_nobody_uses_gives_way_to_another(world):
    began = time.monotonic()
    for last in (2, 3, 4):
        words = ["run", "--run-dir", world.run_dir, "--if", "eth1", "--ip", f"10.77.0.{last}/24"]
        ran = world.beside(world.slipstack, *words, "--", "/usr/bin/python3", "-c", "")
        ran.wait()
        assert "has the address" not in ran.errors(), ran.tail()
        assert f"10.77.0.{last}/24" in ran.errors(), ran.tail()
    assert time.monotonic() - began < 20
