"""The access file: which clients a server lets in, by which token, and what each of them may do.

    [clients.sensors]                   # the entry that a token belongs to: thence token new sensors
    tokens = ["v1:…:…"]                 # one, or two while a token is being replaced
    names = ["sensor-*"]                # what such a client may be called; without: sensors. Temporary ones are always sensors~…
    send = ["collector"]                # to whom it may write
    publish = ["weather.*"]             # on which topics it may publish
    subscribe = ["alarm"]               # which topics it may follow
    broadcast = false                   # whether it may write to everyone
    status = false                      # whether it may ask how the server is
    agents = false                      # whether it may make, look at and remove agents
    topology = false                    # whether it may lead a change of the fabric; it may then see to clients, too
    clients = false                     # whether it may list clients of others, drop what waits for them, and remove them

Rules:

* What is not said is not allowed. A star stands for any text, also for none; everything else stands for itself.
* A file that cannot be read, or says what cannot be, is refused whole, with the place named.
* The server to which a client is connected decides. Other servers trust it, as they trust its certificate.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from thence.core.wire.messages import MAX_NAME_CHARACTERS
from thence.errors import ConfigError
from thence.net.names import objection_to_name
from thence.net.protocol import Challenge, ClientHello, Proof
from thence.net.security.tokens import TEMPORARY_MARK, Verifier, answer, is_proof, new_token, parse_verifier

MAX_TOKENS_EACH: Final = 4
"""How many tokens an entry may have: two while one is being replaced, and some for those who are slow at it."""


class Patterns:
    """Texts, in which a star stands for any text."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Take them as they stand in the file."""
        given = list(patterns)
        self._exact = frozenset(pattern for pattern in given if "*" not in pattern)
        self._parts = [pattern.split("*") for pattern in given if "*" in pattern]

    def match(self, text: str) -> bool:
        """Say whether one of them stands for a text. The time this takes grows with the length of the text, and no faster."""
        return text in self._exact or any(_matches(parts, text) for parts in self._parts)


def _matches(parts: list[str], text: str) -> bool:
    first, *middle, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: list[str]
    names: list[str] | None = None
    send: list[str] = []
    publish: list[str] = []
    subscribe: list[str] = []
    broadcast: bool = False
    status: bool = False
    agents: bool = False
    topology: bool = False
    clients: bool = False


class Rights:
    """What a client of one entry may do. Each question is answered with why not, or with nothing."""

    def __init__(self, entry: str, says: _Entry) -> None:
        """Read what the file says."""
        self.entry = entry
        self._names = Patterns([f"{entry}{TEMPORARY_MARK}*", *([entry] if says.names is None else says.names)])
        self._send = Patterns(says.send)
        self._publish = Patterns(says.publish)
        self._subscribe = Patterns(says.subscribe)
        self._says = says

    def objection_to_name(self, name: str) -> str:
        """Say why it may not be called so. Whoever only asks questions has no name."""
        return "" if not name or self._names.match(name) else self._no(f"be called {name!r}")

    def is_drawn(self, name: str) -> bool:
        """Say whether a client of this entry that was given no name may have drawn this one."""
        drawn = name.removeprefix(f"{self.entry}{TEMPORARY_MARK}")
        return drawn != name and drawn.isalnum() and len(name) <= MAX_NAME_CHARACTERS

    def objection_to_message(self, to: tuple[str, ...] | None, topic: str | None) -> str:
        """Say why it may not write to these, or on this topic; or to everyone, if there is neither."""
        if topic is not None:
            return "" if self._publish.match(topic) else self._no(f"publish on {topic!r}")
        if to is None:
            return "" if self._says.broadcast else self._no("write to everyone")
        for name in to:
            if not self._send.match(name):
                return self._no(f"write to {name!r}")
        return ""

    def objection_to_subscription(self, topic: str) -> str:
        """Say why it may not follow this topic."""
        return "" if self._subscribe.match(topic) else self._no(f"follow {topic!r}")

    def objection_to_status(self) -> str:
        """Say why it may not ask how the server is."""
        return "" if self._says.status else self._no("ask how the server is (status = true)")

    def objection_to_agents(self) -> str:
        """Say why it may not see to agents."""
        return "" if self._says.agents else self._no("see to agents (agents = true)")

    def objection_to_change(self) -> str:
        """Say why it may not lead a change of the fabric."""
        return "" if self._says.topology else self._no("lead a change of the fabric (topology = true)")

    def objection_to_listing(self) -> str:
        """Say why it may not list the clients of the server. How the server is says that, too."""
        return "" if self._says.status else self.objection_to_removal()

    def objection_to_removal(self) -> str:
        """Say why it may not remove clients of others, or drop what waits for them."""
        return "" if self._says.clients or self._says.topology else self._no("see to clients (clients = true)")

    def _no(self, what: str) -> str:
        return f"the access file does not let {self.entry!r} {what}"


EVERYTHING: Final = Rights(
    "everybody",
    _Entry(
        tokens=[],
        names=["*"],
        send=["*"],
        publish=["*"],
        subscribe=["*"],
        broadcast=True,
        status=True,
        agents=True,
        topology=True,
        clients=True,
    ),
)
"""What all may do where there is no access file."""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    clients: dict[str, _Entry] = {}


class Guest(NamedTuple):
    """A client that has proved which entry it is."""

    rights: Rights
    verifier: Verifier
    """Of the token by which it came in."""
    proof: bytes
    """What the server owes it: that it knows the token."""


def objection_to_new(name: str, guest: Guest | None) -> str:
    """Say why a client that has not been here before may not be called so, whatever its entry lets it do."""
    return "" if guest is not None and guest.rights.is_drawn(name) else objection_to_name(name)


class AccessFile:
    """The entries of an access file, as they were when it was last read."""

    def __init__(self, path: Path) -> None:
        """Read the file; ``read`` does it again."""
        self.path = path
        self._tokens: dict[str, list[Verifier]] = {}
        self._rights: dict[str, Rights] = {}
        # Asked for entries that there are not: whoever tries names learns nothing from how long the answer takes.
        self._nobody = new_token("nobody").verifier()
        self.read()

    def read(self) -> None:
        """Read the file as it is now; if that cannot be, ``ConfigError``, and what was read before stays."""
        try:
            text = self.path.read_text(encoding="utf-8")
            says = msgspec.convert(tomllib.loads(text), _File)
        except (OSError, ValueError, msgspec.ValidationError, RecursionError) as error:
            raise ConfigError(f"access file {self.path}: {error}") from None
        if not text and self._rights:  # The most likely half of a file. To be believed would end all subscriptions for good.
            raise ConfigError(f"access file {self.path}: it is empty, as if being written; to let nobody in, write [clients]")
        tokens = {}
        for entry, line in says.clients.items():
            where = f"access file {self.path}: clients.{entry}"
            if not 0 < len(line.tokens) <= MAX_TOKENS_EACH:
                raise ConfigError(f"{where}: {len(line.tokens)} tokens; it must have 1 to MAX_TOKENS_EACH ({MAX_TOKENS_EACH})")
            tokens[entry] = [parse_verifier(token, where) for token in line.tokens]
        self._tokens = tokens
        self._rights = {entry: Rights(entry, line) for entry, line in says.clients.items()}

    def unsigned_operators(self) -> list[str]:
        """Return the entries that may lead changes by a token that does not sign."""
        operators = [entry for entry, rights in self._rights.items() if not rights.objection_to_change()]
        return [entry for entry in operators if not all(verifier.signed for verifier in self._tokens[entry])]

    def wants_signature(self, entry: str) -> bool:
        """Say whether a token of an entry is proved by a signature."""
        return any(verifier.signed for verifier in self._tokens.get(entry, ()))

    def admit(self, hello: ClientHello, challenge: Challenge, proof: Proof, binding: bytes = b"") -> Guest | None:
        """Return what a client may do that has proved which entry it is, over a channel with this binding."""
        found = None
        for verifier in self._tokens.get(hello.entry, [self._nobody]):
            if is_proof(verifier, hello, challenge, proof, binding):
                found = verifier
        if found is None or hello.entry not in self._rights:
            return None
        return Guest(self._rights[hello.entry], found, answer(found, hello, challenge, binding))

    def objection_to_follower(self, name: str, entry: str, topic: str) -> str:
        """Say why the client ``name`` may not follow a topic that came in by this entry; "": by any that lets it be called so."""
        entries = self._rights.values() if not entry else [self._rights[entry]] if entry in self._rights else []
        called = [rights for rights in entries if not rights.objection_to_name(name)]
        if not called:
            whose = f" by the entry {entry!r}" if entry else ""
            return f"the access file lets nobody be called {name!r}{whose} any more"
        reasons = [rights.objection_to_subscription(topic) for rights in called]
        return "" if "" in reasons else reasons[0]

    def objection_to_maker(self, entry: str) -> str:
        """Say why whoever comes in by this entry may not have agents."""
        rights = self._rights.get(entry)
        return f"the access file has no entry {entry!r} any more" if rights is None else rights.objection_to_agents()

    def admit_again(self, guest: Guest) -> Guest | None:
        """Return what a client may do now that came in with the file as it was."""
        rights = self._rights.get(guest.rights.entry)
        if rights is None or guest.verifier not in self._tokens[guest.rights.entry]:
            return None
        return guest._replace(rights=rights)
