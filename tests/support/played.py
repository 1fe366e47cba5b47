"""An endpoint whose link is played: what lies between it and others does what a test wants."""

from __future__ import annotations

from thence.client.endpoint import Endpoint, EndpointParts
from thence.client.message import Message
from thence.net.protocol import BatchItem, Publish, read_messages, write_messages


class PlayedLink:
    """Writes down what an endpoint would send, and accepts all of it."""

    def __init__(self, parts: EndpointParts) -> None:
        self.sent: list[Publish] = []
        self.acknowledged: list[int] = []
        self.happened: list[str] = []
        self.accepts = True
        self._parts = parts
        parts.connect(self)

    def transmit(self, publish: Publish) -> None:
        self.sent.append(publish)
        if self.accepts:
            self._parts.outbox.on_accepted(publish.first + publish.count - 1)

    def acknowledge(self, upto: int, limit: int, answer: bool) -> None:
        self.acknowledged.append(upto)
        if answer:
            self._parts.acks.on_durable(upto)

    def ask_safety(self) -> None:
        self.happened.append("asks what is safe")

    async def follow(self, topic: str, *, wanted: bool) -> None:
        raise AssertionError("there are no topics here")

    async def known(self, name: str) -> None:
        raise AssertionError("there is nobody to look for here")

    async def until_stable(self) -> None:
        raise AssertionError("there is nobody who could have it here")


class Played(Endpoint):
    """An endpoint whose link is played."""

    def __init__(self) -> None:
        super().__init__("me")
        self.parts = self._parts
        self._link = self.link = PlayedLink(self.parts)
        self.sent, self.acknowledged, self.happened = self.link.sent, self.link.acknowledged, self.link.happened
        self.parts.state.enter()
        replied = self.parts.requests.replied

        def noted(message: Message, *, everyone: bool = False) -> str:
            self.happened.append(f"reply {message.body.decode()}")
            return replied(message, everyone=everyone)

        self.parts.requests.replied = noted  # type: ignore[method-assign]

    def come(self, first: int, *messages: BatchItem) -> None:
        """Messages come in, in one batch."""
        self.parts.deliveries.deliver(first, 0, "you", None, write_messages(list(messages)), everyone=False)

    def asked(self, at: int = -1) -> int:
        """Return the id of the request that was sent last, or before."""
        return read_messages(self.sent[at].messages, "me")[0].request

    def handle(self, message: Message) -> None:
        """Write down a message, or fail at it."""
        if message.body == b"bad":
            raise ValueError("bad")
        self.happened.append(f"message {message.body.decode()}")
