"""One word for each idea: the table of words, those that they replace, and who may still use these.

``python -m tests.house.words`` writes ``docs/reference/glossary.md`` from it; ``tests/house/test_words.py`` holds the page to
the table, and code and pages to the words. Rules:

* The field's word comes first. A word of a paper stands in ``docs/research``, in ``tests/papers`` and in the glossary.
* A retired word is retired everywhere, or only in names where it is plain English in a sentence (``told``, ``taken``).
* ``ALLOWED`` is for good: names that were released stay, and a paper is quoted in its own words.
* ``LEFT`` only shrinks: a count goes down, and an entry that reaches 0 is removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "glossary.md"


class Word(NamedTuple):
    """A word that we use, what it means, and those that we do not use for it."""

    word: str
    meaning: str
    retired: tuple[str, ...] = ()


class Retired(NamedTuple):
    """How a retired word is found; in sentences too, unless it is plain English there."""

    pattern: str
    only_in_names: bool = False


class Allowed(NamedTuple):
    """Where a retired word is right, for good: in these files and folders, and why."""

    word: str
    where: tuple[str, ...]
    why: str


class Left(NamedTuple):
    """How many uses of a retired word are left, and why."""

    word: str
    uses: int
    why: str


PAPERS: Final = ("interconnect", "daisy", "clusters", "gateways", "domains")
TITLES: Final = {
    "interconnect": "Parallel interconnection of broadcast systems with multiple FIFO channels",
    "daisy": "The hierarchical daisy architecture for causal delivery",
    "clusters": "A scalable scheme for causal message ordering",
    "gateways": "Large-scale group communication in heterogeneous network",
    "domains": "Preserving causality in a scalable message-oriented middleware",
}
IN_PAPERS: Final = {
    "process": ("process", "process", "site, client", "local process", "agent server"),
    "domain": ("system", "local group, servers group", "cluster", "subgroup, main subgroup", "domain of causality"),
    "relay": ("IS process", "causal server, hyper-server", "agent", "gateway", "causal router-server"),
    "link": ("interconnection link", "-", "-", "-", "-"),
    "ordering": (
        "broadcast protocol",
        "causal broadcast (vector)",
        "CMD (RST or centralised)",
        "vector, physical clock, controller",
        "matrix clock with Updates",
    ),
    "ack": ("-", "acknowledgement", "-", "confirmation", "acknowledgement"),
}

SECTIONS: Final = {
    "Who and where": (
        Word("process", "something that sends and delivers; it has a name"),
        Word("domain", "a set of processes that keep order among themselves, by one ordering"),
        Word("member", "a process as seen from a domain that it belongs to; in code, its state there"),
        Word("relay", "a member of several domains; it forwards what it delivers, in the order in which it delivers it"),
        Word("link", "a connection between relays of two domains that share no member"),
        Word("ordering", "the rule by which members of a domain decide when to deliver, and one member's state for it"),
        Word("gateway, coordinator", "members with a special part in `grouped` and in `sequenced`"),
        Word("channel", "exactly-once transport between two members of a domain"),
        Word("peer", "another member that we exchange frames with", ("neighbour",)),
        Word("suspected", "believed to be down", ("held for dead",)),
        Word("failure detector", "decides which peers are suspected", ("watcher", "patience")),
        Word("view", "the version of a fabric that is in force"),
        Word("reconfiguration", "any change of the topology", ("evolution", "changeover", "changing", "applying")),
        Word(
            "epoch",
            "one life of a store, link or program; numbers of two epochs are not compared",
            ("incarnation", "meeting"),
        ),
        Word("lost", "declared by an operator to be gone for good ([page](../how-to/removal.md))"),
        Word("survivor", "a member that goes on without those that are lost"),
        Word("flush", "what survivors do before the next view: each gets what it lacks"),
    ),
    "What travels": (
        Word("message", "what applications send and get: an id, destinations and a body", ("letter", "publication")),
        Word("envelope", "a message as it travels from end to end; it never changes on its way"),
        Word("stamp", "the control information that an ordering adds, for one hop in one domain"),
        Word("frame", "a stamp with an envelope, or with none"),
        Word(
            "marker",
            "a frame without an envelope: a message that is not for its receiver and that others depend on",
        ),
        Word("batch", "messages of one sender for the same recipients that travel together", ("bundle",)),
        Word("packet", "frames from one member to another, with channel numbers and acks"),
        Word("origin, number", "the sender of a message and its count so far; together the id, written `A:3`"),
        Word("control bytes", "the bytes of the stamps"),
    ),
    "What happens to it": (
        Word("submit", "the application gives a message to its member"),
        Word("accepted", "the message is durable and will be delivered everywhere"),
        Word("arrive", "a packet or frame reaches a member"),
        Word("take", "a member keeps a frame for good and acknowledges it"),
        Word("refuse", "a frame is not taken, and nothing changes"),
        Word("ack, acknowledged", "a peer has it on disk", ("confirm", "receipt", "taken", "told")),
        Word("wait, hold", "a frame is here, and a predecessor of its message is missing"),
        Word("release", "a frame's turn has come: deliver it, or count a marker"),
        Word("deliver", "give a message to the application", ("handed",)),
        Word("done", "the application has finished a message"),
        Word("position", "counts a member's deliveries from 1"),
        Word("consumed", "the position up to which the application is durably done"),
        Word("stable", "every recipient has it on disk ([stability](../concepts/stability.md))", ("settled", "settling")),
        Word("safe", "all members of one domain that get the message are known to have it on disk", ("guarded", "guarding")),
        Word("safety notice", "tells a receiver that a message it already has became safe", ("noticed", "noticing")),
        Word("record, snapshot", "what a member stores: each input that changed it, and its whole state"),
        Word("depth", "one more than the deepest message that the sender had sent or delivered"),
    ),
    "At servers": (
        Word("client", "a program with a name at a server"),
        Word("listener", "accepts connections on one port", ("door",)),
        Word("session", "the state of one client's connection", ("desk",)),
        Word("directory", "which names and subscriptions exist, and where", ("office",)),
        Word("mailbox", "messages that wait at a server for a client or an agent, in order", ("box",)),
        Word("dispatch", "give deliveries to mailboxes and handlers", ("handing",)),
        Word("announcement", "a message by which servers tell each other of clients, agents and topics"),
        Word("agent", "an object with a name and a state that lives in a server ([page](../how-to/agents.md))"),
        Word("reaction", "what an agent does about one message: a new state and messages sent, committed together"),
        Word("dead letter", "a message that could not be processed, set aside", ("buried",)),
    ),
    "What is judged": (
        Word("event", "one line of a trace: a process sends, delivers, crashes, …"),
        Word("trace", "all events of one or more runs ([format](trace.md))"),
        Word("happens before", "the order within a process, send before deliver, and what follows from both"),
        Word("concurrent", "neither happens before the other"),
        Word("property", "one thing that is kept or violated: fifo, causal, total, … ([definitions](../how-to/judge.md))"),
        Word("violation", "one offending event, or pair"),
        Word("verdict", "kept or violated"),
        Word("chain", "the messages through which one led to another"),
    ),
    "Tools": (
        Word("run", "one execution, simulated or real"),
        Word("seed", "the number from which all chance of a simulated run comes"),
        Word("law", "how long something takes, as text: `exponential:10ms`"),
        Word("scenario", "a run as text, with the output that it expects"),
        Word("case", "the input of the explorer: a domain, a number of messages and a pattern"),
        Word("step", "one action that the explorer tries"),
        Word("replay", "do a run again, exactly"),
    ),
}

RETIRED: Final = {
    "neighbour": Retired(r"neighbours?"),
    "held for dead": Retired(r"(?:held|hold|holds|holding) [\w%' ]{0,20}?for dead"),
    "watcher": Retired(r"watchers?"),
    "evolution": Retired(r"evolutions?|evolv(?:e|es|ed|ing)"),
    "changeover": Retired(r"change ?overs?"),
    "incarnation": Retired(r"incarnations?"),
    "letter": Retired(r"(?<!dead[ _])(?<!first )(?<!capital )letters?"),
    "publication": Retired(r"publications?"),
    "bundle": Retired(r"bundle[sd]?"),
    "confirm": Retired(r"(?:un)?confirm(?:s|ed|ing|ation|ations)?"),
    "receipt": Retired(r"receipts?"),
    "door": Retired(r"doors?"),
    "desk": Retired(r"desks?"),
    "office": Retired(r"offices?"),
    "box": Retired(r"box(?:es)?"),
    "handing": Retired(r"handing", only_in_names=True),
    "buried": Retired(r"buried|bury"),
    "patience": Retired(r"patience", only_in_names=True),
    "changing": Retired(r"changing", only_in_names=True),
    "applying": Retired(r"applying", only_in_names=True),
    "meeting": Retired(r"meetings?", only_in_names=True),
    "taken": Retired(r"taken", only_in_names=True),
    "told": Retired(r"told|telling", only_in_names=True),
    "handed": Retired(r"handed", only_in_names=True),
    "settled": Retired(r"settled", only_in_names=True),
    "settling": Retired(r"settling", only_in_names=True),
    "guarded": Retired(r"guarded", only_in_names=True),
    "guarding": Retired(r"guarding", only_in_names=True),
    "noticed": Retired(r"noticed", only_in_names=True),
    "noticing": Retired(r"noticing", only_in_names=True),
}

KEYS: Final = {
    r"\bthence_[\w(|]+(?:\{[^}\n]*\})?|`neighbour`|\{by=\"box\"\}": "metrics and labels: released names stay",
    r"\bThence[A-Z]\w+": "alarms: released names stay",
    r"\b(?:neighbour|letters?)-[\w-]+|`letters?`|\bstopped-unconfirmed\b": "log events and their fields: released names stay",
    r"\bletters_(?:undeliverable|withheld)\b|\bwaiting_letters\b": "keys of `thence status --json`",
    r"\bdomains\.NAME\.confirmation\b|\bconfirmation = |: confirmation: ": "a key of the topology file",
    r"\bbox_bytes\b|\bboxes_mb\b": "columns of the data of a study",
    r"\b(?:tests|benchmarks)[/.][\w./]+(?: --neighbour)?|\bbenchmarks confirmation\b": "tests and benchmarks: not read",
}

ALLOWED: Final = (
    Allowed("letter", ("src/thence/cli/answers.py",), "keys of `thence status --json`"),
    Allowed("box", ("src/thence/cli/answers.py",), "keys of `thence status --json`"),
    Allowed("neighbour", ("src/thence/cli/answers.py",), "keys of `thence status --json`"),
    Allowed("held for dead", ("src/thence/cli/answers.py",), "keys of `thence status --json`"),
    Allowed(
        "confirm",
        ("docs/research/", "src/thence/studies/"),
        "the gateways paper says confirmation, and studies repeat its claims",
    ),
    Allowed("neighbour", ("docs/research/studies/", "src/thence/studies/"), "the interconnect paper numbers per neighbour"),
    Allowed("receipt", ("docs/research/studies/", "src/thence/studies/"), "the daisy paper acknowledges on receipt"),
    Allowed("receipt", ("src/thence/pipeline/importers/clocks.py",), "in a log of somebody else's: the event of receiving"),
    Allowed(
        "office", ("README.md", "docs/tutorial/", "docs/how-to/chat.md"), "the fabric of the examples is an office with floors"
    ),
    Allowed(
        "box",
        ("src/thence/cli/console.py", "src/thence/pipeline/report/"),
        "rich's module of table borders, and a property of CSS",
    ),
    Allowed("told", ("src/thence/cli/", "src/thence/studies/"), "what is printed for people, not an ack"),
)

LEFT: Final[tuple[Left, ...]] = ()
"""None is left."""


def glossary() -> str:
    """Return the page."""
    lines = [
        "# Glossary",
        "",
        "One word for each idea. Code and pages use the word in the first column, and never the one in the last.",
        "",
        "`python -m tests.house.words` writes this page from the table in `tests/house/words.py`. A test reads names,",
        "docstrings, comments, messages, help and pages, and fails on a retired word.",
    ]
    for section, words in SECTIONS.items():
        lines += ["", f"## {section}", "", "| word | meaning | not |", "|---|---|---|"]
        lines += [f"| {one.word} | {one.meaning} | {', '.join(one.retired)} |".replace("|  |", "| |") for one in words]
    lines += ["", "## In the papers", "", f"| ours | {' | '.join(PAPERS)} |", f"|---|{'---|' * len(PAPERS)}"]
    lines += [f"| {ours} | {' | '.join(theirs)} |" for ours, theirs in IN_PAPERS.items()]
    lines += ["", *(f"* **{name}**: *{title}*" for name, title in TITLES.items()), ""]
    lines += ["An agent is a relay in clusters, and what we call an agent in domains.", ""]
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(glossary(), encoding="utf-8")


if __name__ == "__main__":
    main()
