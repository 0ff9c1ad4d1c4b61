"""Scripts with threads that once had another result than on the kernel."""

from scripts import written
from threads import FILL

BEGINS = """
A listen 20 7000
P connect 31 ADDRESS 7000
A accept 20 21
A thread T2
"""

STORIES = {
    "a number is closed while another thread writes": f"""
T2 begin fill 21 {FILL}
A close 21
T2 result
P drain 31
T2 result
P drain 31
""",
    "a number is closed while another thread has received a part": """
T2 begin get-all 21 10
P write 31 one
A close 21
P write 31 two
T2 result
P wait 31
P write 31 three
T2 result
P wait 31
""",
    "a call that has received a part leaves a reset to the next": """
T2 begin get-all 21 10
P write 31 abc
P reset 31
T2 result
A read 21 10
A read 21 10
""",
    "a number is closed while other threads are in poll and select": """
A thread T3
T2 begin await 21 1
T3 begin select 21 r
A close 21
P wait 31
P write 31 text
T2 result
T3 result
P wait 31
""",
    "a listener that is shut down while other threads look at it": """
A thread T3
A epoll 25
A watch 25 20 1
T2 begin await 20 5
T3 begin gather 25
A shutdown 20 2
T2 result
T3 result
A poll 20
""",
}


def scripts():
    return {name: written(BEGINS + lines) for name, lines in STORIES.items()}
