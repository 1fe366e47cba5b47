"""Causally ordered messaging that scales by domains.

This file exists to say which names are public. Rules: it defines nothing of its own but the version, it imports
nothing heavy (a test holds ``import thence`` to few modules, without Spark, Arrow, numpy or asyncio), and every public name
stands in ``__all__``, which a test pins. What runs is imported when it is first used.

Exports the names below.
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
    from thence.agents.agent import Agent
    from thence.client.admin import Agents
    from thence.client.blocking import BlockingClient, connect_blocking
    from thence.client.client import Client, connect
    from thence.client.embedded import Member
    from thence.client.message import EVERYONE, Message
    from thence.core.reconfig.protocol import NewView
    from thence.net.security.tls import TlsFiles
    from thence.runtime.event_loop import stay_awake

__version__ = "0.1.0"

_LAZY = {
    "EVERYONE": "client.message",
    "Agent": "agents.agent",
    "Agents": "client.admin",
    "BlockingClient": "client.blocking",
    "Client": "client.client",
    "Member": "client.embedded",
    "Message": "client.message",
    "NewView": "client.endpoint",
    "TlsFiles": "net.security.tls",
    "connect": "client.client",
    "connect_blocking": "client.blocking",
    "stay_awake": "runtime.event_loop",
}


def __getattr__(name: str) -> _Any:
    """Import a name of what runs when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'thence' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"thence.{_LAZY[name]}"), name)


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
