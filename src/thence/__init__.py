"""thence: causally ordered messaging that scales by domains.

This file exists to say which names are public. Rules: it defines nothing of its own but the version, it imports
nothing heavy (a test holds ``import thence`` to 0.2 seconds, without Spark, Arrow, numpy or asyncio), and every public name
stands in ``__all__``, which a test pins. What runs is imported when it is first used.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from thence.errors import (
    Busy,
    ConfigError,
    Fenced,
    FrameRefused,
    ImpossibleFrame,
    InternalError,
    MalformedFrame,
    NotAllowed,
    OverflowingFrame,
    Refusal,
    ReplayedFrame,
    StateLost,
    StorageError,
    StoreFull,
    StrangerFrame,
    ThenceError,
    TraceError,
    UsageError,
)

if _TYPE_CHECKING:
    from thence.core.views import NewView
    from thence.runtime.agent import Agent
    from thence.runtime.agent_client import Agents
    from thence.runtime.blocking import BlockingClient, connect_blocking
    from thence.runtime.client import Client, connect
    from thence.runtime.embedded import Member
    from thence.runtime.letters import EVERYONE, Message
    from thence.runtime.polling import stay_awake
    from thence.runtime.tls import TlsFiles

__version__ = "0.1.0"

_RUNNING = {
    "EVERYONE": "letters",
    "Agent": "agent",
    "Agents": "agent_client",
    "BlockingClient": "blocking",
    "Client": "client",
    "Member": "embedded",
    "Message": "letters",
    "NewView": "endpoint",
    "TlsFiles": "tls",
    "connect": "client",
    "connect_blocking": "blocking",
    "stay_awake": "polling",
}


def __getattr__(name: str) -> _Any:
    """Import a name of what runs when it is asked for."""
    if name not in _RUNNING:
        raise AttributeError(f"module 'thence' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"thence.runtime.{_RUNNING[name]}"), name)


__all__ = [
    "EVERYONE",
    "Agent",
    "Agents",
    "BlockingClient",
    "Busy",
    "Client",
    "ConfigError",
    "Fenced",
    "FrameRefused",
    "ImpossibleFrame",
    "InternalError",
    "MalformedFrame",
    "Member",
    "Message",
    "NewView",
    "NotAllowed",
    "OverflowingFrame",
    "Refusal",
    "ReplayedFrame",
    "StateLost",
    "StorageError",
    "StoreFull",
    "StrangerFrame",
    "ThenceError",
    "TlsFiles",
    "TraceError",
    "UsageError",
    "__version__",
    "connect",
    "connect_blocking",
    "stay_awake",
]
