"""thence: causally ordered messaging that scales by domains.

This file exists to say which names are public. Rules: it defines nothing of its own but the version, it imports
nothing heavy (a test holds ``import thence`` to 0.2 seconds, without Spark, Arrow or numpy), and every public name
stands in ``__all__``, which a test pins.
"""

from thence.errors import (
    Busy,
    ConfigError,
    FrameRefused,
    ImpossibleFrame,
    InternalError,
    MalformedFrame,
    OverflowingFrame,
    Refusal,
    ReplayedFrame,
    StorageError,
    StoreFull,
    StrangerFrame,
    ThenceError,
    TraceError,
    UsageError,
)

__version__ = "0.1.0"

__all__ = [
    "Busy",
    "ConfigError",
    "FrameRefused",
    "ImpossibleFrame",
    "InternalError",
    "MalformedFrame",
    "OverflowingFrame",
    "Refusal",
    "ReplayedFrame",
    "StorageError",
    "StoreFull",
    "StrangerFrame",
    "ThenceError",
    "TraceError",
    "UsageError",
    "__version__",
]
