"""stub"""

from pathlib import Path


def write_report(folder, to):
    return [Path("x")]
