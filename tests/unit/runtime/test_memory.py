"""Memory that a server gives back stays with it, and what is there for ever is not looked at again and again."""

from __future__ import annotations

import subprocess
import sys

PIECES, PIECE_BYTES, PAGE_BYTES = 200, 1024 * 1024, 4096
FAULTS = f"""
import resource
from thence.runtime.memory import keep_freed_memory
{{call}}
for _ in range({PIECES}):
    bytearray({PIECE_BYTES + 1}).replace(b"x", b"y")
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({PIECES}):
    bytearray({PIECE_BYTES + 1}).replace(b"x", b"y")
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    """How many pages a program has mapped anew while it took and gave back the same pieces again and again."""
    code = FAULTS.replace("{call}", call)
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout)


def test_what_was_given_back_is_not_mapped_again() -> None:
    pages = PIECES * PIECE_BYTES // PAGE_BYTES
    assert faults("assert keep_freed_memory()") < pages // 100
    assert faults("") > pages // 2


LOOKED_AT = """
import gc
from thence.runtime.memory import YOUNG_OBJECTS, look_for_garbage_less_often
before = len(gc.get_objects())
look_for_garbage_less_often()
assert len(gc.get_objects()) < before // 100, "what was there is looked at"
assert gc.get_threshold()[0] == YOUNG_OBJECTS
circle = []
circle.append(circle)
del circle
print(gc.collect())
"""


def test_what_is_there_at_the_start_is_not_looked_at_again_and_new_circles_are() -> None:
    told = subprocess.run([sys.executable, "-c", LOOKED_AT], check=True, capture_output=True, text=True, timeout=60)
    assert int(told.stdout) == 1
