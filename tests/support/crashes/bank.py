"""A bank whose accounts are agents, for tests: money that moves along trees of messages, and the audit of what came of it.

A client sends the root of a tree to an account. Each account takes what the move brings and sends on, in the same reaction, what
its branches take. The sum of all balances never changes, and every move of every tree is made once. No account can react to
``Poison``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

import thence


class Move(msgspec.Struct, tag="move"):
    """Brings ``amount``; of that and of what is there, each branch takes its own on."""

    id: str
    amount: int
    branches: list[tuple[str, Move]] = []

    def ids(self) -> Iterator[str]:
        """Give the names of this move and of all that follow from it."""
        yield self.id
        for _, branch in self.branches:
            yield from branch.ids()


class Poison(msgspec.Struct, tag="poison"):
    """No account can react to this."""

    id: str


class AccountState(msgspec.Struct):
    """What an account keeps."""

    balance: int = 0
    seen: list[str] = []


class Account(thence.Agent):
    """One account."""

    state: AccountState

    async def react(self, message: thence.Message) -> None:
        """Take, and send on."""
        move = message.value(Move | Poison)
        self.state.seen.append(move.id)
        if isinstance(move, Poison):
            await self.send(self.name, Move(f"{move.id} must not be sent", 1))
            raise self.poisoned(move)
        self.state.balance += move.amount
        for to, branch in move.branches:
            self.state.balance -= branch.amount
            await self.send(to, branch)
        if message.wants_reply:
            message.reply(self.state.balance)

    def poisoned(self, poison: Poison) -> Exception:
        """Return what is raised after something was changed and sent."""
        return RuntimeError(poison.id)


def tree(chance: Random, accounts: Sequence[str], name: str, depth: int = 3) -> Move:
    """Return a random tree of moves."""
    count = chance.randint(0 if depth < 3 else 1, 2) if depth else 0
    branches = []
    for number in range(count):
        branch = tree(chance, accounts, f"{name}.{number}", depth - 1)
        branch.amount = chance.randint(1, 20)
        branches.append((chance.choice(accounts), branch))
    return Move(name, 0, branches)


def audit(
    states: Mapping[str, AccountState], total: int, sent: Iterable[Move], dead: Iterable[str], poison: Iterable[str]
) -> list[str]:
    """Say what is wrong with the books: ``dead`` are the messages that were set aside, ``poison`` those that had to be."""
    wrong = []
    balance = sum(state.balance for state in states.values())
    if balance != total:
        wrong.append(f"the balances are {balance}, and should be {total}")
    made = Counter(move for state in states.values() for move in state.seen)
    wrong += [f"{move} was made {count} times" for move, count in made.items() if count > 1]
    expected = {one for move in sent for one in move.ids()}
    wrong += [f"{move} was not made" for move in sorted(expected - set(made))]
    wrong += [f"{move} was made, and never sent" for move in sorted(set(made) - expected)]
    set_aside = Counter(dead)
    if set_aside != Counter(poison):
        wrong.append(f"set aside were {sorted(set_aside.elements())}, and should be {sorted(poison)}")
    return wrong


def state_of(shown: Mapping[str, Any]) -> AccountState:
    """Return the state in what a server shows of an agent."""
    return msgspec.convert(shown["state"], AccountState)
