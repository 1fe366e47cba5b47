"""A bank: each account is an agent, and money moves between accounts by messages.

    thence up examples/city.toml --agents examples.bank
    thence agent create URL ann Account --state '{"balance": 100}'

Whoever asks an account to pay (``Pay``) gets the answer when the money is on its way. The amount leaves the one account and the
message that brings it to the other is sent in one reaction: a crash repeats both or none. So whatever crashes, and wherever the
accounts live, the sum of all balances and of what is on its way is always the same.
"""

from __future__ import annotations

import msgspec

import thence


class Pay(msgspec.Struct, tag="pay"):
    """Move money to another account."""

    to: str
    amount: int


class Deposit(msgspec.Struct, tag="deposit"):
    """Money that comes from another account."""

    amount: int


class Balance(msgspec.Struct, tag="balance"):
    """How much is there?"""


class AccountState(msgspec.Struct):
    """What an account keeps."""

    balance: int = 0
    refused: int = 0


class Account(thence.Agent):
    """One account."""

    state: AccountState

    async def react(self, message: thence.Message) -> None:
        """Pay, take, or tell."""
        asked = message.value(Pay | Deposit | Balance)
        answer: int | str = self.state.balance
        if isinstance(asked, Deposit):
            self.state.balance += asked.amount
        elif isinstance(asked, Pay):
            answer = await self._pay(asked)
        if message.wants_reply:
            message.reply(answer)

    async def _pay(self, asked: Pay) -> str:
        if asked.amount <= 0:
            raise ValueError(f"an amount of {asked.amount}")  # Nobody should ask for this: it becomes a dead message.
        if asked.amount > self.state.balance:
            self.state.refused += 1
            return "refused"
        self.state.balance -= asked.amount
        await self.send(asked.to, Deposit(asked.amount))
        return "paid"
