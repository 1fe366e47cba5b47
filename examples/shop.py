"""A saga: an order is paid, then taken from stock, and paid back if there is none. Three agents, at whatever servers they live.

    thence up examples/recipes.toml --agents examples.shop
    thence agent create URL orders Orders
    thence agent create URL payment Payment --state '{"accounts": {"ann": 100}}'
    thence agent create URL stock Stock --state '{"items": {"tea": 3}}'

Each step of the saga is one reaction of one agent. What it consumes, what it changes and what it sends are committed together, so
a crash anywhere repeats a step wholly or not at all: nobody pays twice, and nothing is taken from stock without being paid. No
step checks whether it was done before, and nobody has to look for sagas that stopped half-way: their next message is on disk.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import msgspec

import thence

ENDS = ("done", "declined", "cancelled")
Outcome = Literal["open", "paid", "done", "declined", "refunding", "cancelled"]


class Place(msgspec.Struct, tag="place"):
    """Somebody orders something."""

    order: str
    customer: str
    item: str
    price: int


class Charge(msgspec.Struct, tag="charge"):
    """Take the price from the customer's account."""

    order: str
    customer: str
    price: int


class Refund(msgspec.Struct, tag="refund"):
    """Compensation: give it back."""

    order: str
    customer: str
    price: int


class Reserve(msgspec.Struct, tag="reserve"):
    """Take one from stock."""

    order: str
    item: str


class Answer(msgspec.Struct, tag="answer"):
    """How a step went."""

    order: str
    step: Literal["charge", "refund", "reserve"]
    is_done: bool


class Order(msgspec.Struct):
    """One order, and how far it is."""

    placed: Place
    outcome: Outcome = "open"


class Orders(thence.Agent):
    """Leads each order from step to step."""

    state: dict[str, Order]

    async def react(self, message: thence.Message) -> None:
        """Begin an order, or go on with one."""
        said = message.value(Place | Answer)
        if isinstance(said, Answer):
            await self._go_on(self.state[said.order], said)
        elif said.order not in self.state:  # A customer may ask again.
            self.state[said.order] = Order(said)
            await self.send("payment", Charge(said.order, said.customer, said.price))
        if message.wants_reply:
            message.reply(self.state[said.order].outcome)

    async def _go_on(self, order: Order, answer: Answer) -> None:
        placed = order.placed
        if answer.step == "charge":
            order.outcome = "paid" if answer.is_done else "declined"
            if answer.is_done:
                await self.send("stock", Reserve(placed.order, placed.item))
        elif answer.step == "reserve":
            order.outcome = "done" if answer.is_done else "refunding"
            if not answer.is_done:
                await self.send("payment", Refund(placed.order, placed.customer, placed.price))
        else:
            order.outcome = "cancelled"


class Money(msgspec.Struct):
    """What customers have, and what was taken from them."""

    accounts: dict[str, int] = {}
    till: int = 0


class Payment(thence.Agent):
    """Moves money from accounts into the till, and back."""

    state: Money

    async def react(self, message: thence.Message) -> None:
        """Charge or refund, and say how it went."""
        said = message.value(Charge | Refund)
        amount = said.price if isinstance(said, Charge) else -said.price
        enough = self.state.accounts.get(said.customer, 0) >= amount
        if enough:
            self.state.accounts[said.customer] -= amount
            self.state.till += amount
        await self.send(message.sender, Answer(said.order, "charge" if isinstance(said, Charge) else "refund", enough))


class Shelf(msgspec.Struct):
    """What is there, and what left."""

    items: dict[str, int] = {}
    reserved: list[str] = []
    """The orders that got theirs."""


class Stock(thence.Agent):
    """Hands out what there is."""

    state: Shelf

    async def react(self, message: thence.Message) -> None:
        """Take one, and say whether there was one."""
        said = message.value(Reserve)
        there = self.state.items.get(said.item, 0) > 0
        if there:
            self.state.items[said.item] -= 1
            self.state.reserved.append(said.order)
        await self.send(message.sender, Answer(said.order, "reserve", there))


async def main(url: str, order: str, customer: str, item: str, price: str) -> None:
    """Order something, and ask until the order has come to its end."""
    async with thence.connect(url) as client:
        for agent in ("payment", "stock"):
            await client.known(agent)
        outcome = ""
        while outcome not in ENDS:
            outcome = (await client.request("orders", Place(order, customer, item, int(price)))).value(str)
            await asyncio.sleep(0.05)
        print(f"{order}: {outcome}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
