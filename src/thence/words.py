"""Numbers and kinds as people write them: "1 message waits", "2 deliveries", "an int". Every text for people counts by this.

Rules: it imports nothing, so that everybody can use it.
"""

from __future__ import annotations

SINGULAR = {"are": "is", "were": "was", "have": "has"}


def counted(number: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun, and with a verb, given in the plural, if there is one.

    >>> counted(1, "message"), counted(2_000, "delivery"), counted(3, "delay"), counted(0, "process")
    ('1 message', '2,000 deliveries', '3 delays', '0 processes')
    >>> counted(1, "frame", "wait"), counted(2, "frame", "wait"), counted(1, "line", "were")
    ('1 frame waits', '2 frames wait', '1 line was')
    """
    if number == 1:
        return f"1 {noun} {SINGULAR.get(verb, verb + 's')}" if verb else f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        nouns = f"{noun[:-1]}ies"
    else:
        nouns = f"{noun}{'es' if noun.endswith('s') else 's'}"
    return f"{number:,} {nouns} {verb}".rstrip()


def article(noun: str) -> str:
    """Return a noun behind "a" or "an", by its first letter.

    >>> article("int"), article("list[int]"), article("Accepted")
    ('an int', 'a list[int]', 'an Accepted')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
