"""Options that several commands share: whoever connects to servers takes all of them, with the same environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from thence.cli.main import build

CONNECTING = {
    "agent create",
    "agent dead",
    "agent drop",
    "agent list",
    "agent remove",
    "agent retry",
    "agent show",
    "bench",
    "chat",
    "client list",
    "client purge",
    "client remove",
    "client show",
    "listen",
    "send",
    "status",
    "top",
    "topology apply",
}
SHARED = {
    "--token": ("THENCE_TOKEN", "Our token, for a server"),
    "--tls-ca": ("THENCE_CA", "Who signs the certificates of servers"),
}


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give the context of every command, and of those of its own that it has, with its name."""
    for name, lazy in group.commands.items():
        context = lazy.make_context(name, [], resilient_parsing=True)
        if hasattr(context.command, "commands"):
            yield from commands(context.command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", context


ALL = dict(commands(build()))


@pytest.mark.parametrize("name", sorted(ALL))
def test_whoever_connects_takes_the_same_options_and_environment(name: str) -> None:
    params = ALL[name].command.get_params(ALL[name])
    options = {flag: (param.envvar, str(getattr(param, "help", ""))) for param in params for flag in param.opts}
    if name not in CONNECTING:
        assert not {"--token", "URL", "url"} & options.keys(), "it connects, and is not listed above"
        return
    for flag, (environment, words) in SHARED.items():
        assert options[flag][0] == environment
        assert options[flag][1].startswith(words)


def test_every_command_that_connects_is_there() -> None:
    assert ALL.keys() >= CONNECTING
