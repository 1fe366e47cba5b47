"""How much of each client is on its way to the disk: those who send much share it, and those who send little do not wait."""

from __future__ import annotations

from typing import cast

from tests.unit.node.sessions.test_session import PlayedClient, PlayedNode, again, messages, played
from thence.node.node import Node
from thence.node.sessions.in_flight import FEW_WAITING, LEAST_IN_FLIGHT, MAX_IN_FLIGHT, InFlight
from thence.node.sessions.session import CROWD, Session
from thence.storage.bodies import Joined

MANY = 3 * MAX_IN_FLIGHT


class Server:
    """Clients of one server."""

    def __init__(self) -> None:
        self.node = PlayedNode()
        self.senders: set[InFlight] = set()

    def session(self, client: str) -> Session:
        self.node.deliver(Joined(client, "s1", temporary=False))
        return Session(cast("Node", self.node), client, PlayedClient(), on_room=lambda _: None, senders=self.senders)


def publish(session: Session, first: int, last: int) -> None:
    for number in range(first, last + 1):
        session.publish(messages(number))


def test_whoever_sends_much_has_so_much_in_flight_and_another_goes_on_at_once() -> None:
    server = Server()
    flooder, light = server.session("flooder"), server.session("light")
    publish(flooder, 1, MANY)
    assert server.node.taken == list(range(1, MAX_IN_FLIGHT + 1))
    del server.node.taken[:]
    publish(light, 1, 10)
    assert server.node.taken == list(range(1, 11)), "nothing of it waits"


def test_those_who_send_much_share_what_may_be_in_flight() -> None:
    server = Server()
    crowd = [server.session(f"c{at}") for at in range(8)]
    for session in crowd:
        publish(session, 1, MANY)
    for session in crowd:
        session.answered(session.client, MANY)
        del server.node.taken[:]
        publish(session, MANY + 1, MANY + 1)
        session.go_on()
        assert LEAST_IN_FLIGHT <= len(server.node.taken) <= MAX_IN_FLIGHT // (len(crowd) - 1)


def test_who_is_gone_leaves_its_part_to_others() -> None:
    server = Server()
    flooder, other = server.session("flooder"), server.session("other")
    publish(flooder, 1, MANY)
    publish(other, 1, MANY)
    other.in_flight.leave()
    flooder.answered("flooder", MAX_IN_FLIGHT)
    del server.node.taken[:]
    flooder.go_on()
    assert len(server.node.taken) == MAX_IN_FLIGHT


def test_rejected_messages_are_in_flight_until_that_is_durable() -> None:
    server = Server()
    flooder = server.session("flooder")
    for number in range(1, MANY + 1):
        flooder.publish(messages(number, topic="never"))
    (rejected,) = server.node.directory.state.mailboxes["flooder"].rejected
    assert rejected.count == MAX_IN_FLIGHT
    assert flooder.waiting == MANY - MAX_IN_FLIGHT


def test_nobody_is_read_more_slowly_for_want_of_room_in_a_mailbox() -> None:
    server = Server()
    flooder = server.session("flooder")
    publish(flooder, 1, CROWD + MAX_IN_FLIGHT)
    seen = [flooder.crowded]
    publish(flooder, CROWD + MAX_IN_FLIGHT + 1, CROWD + MAX_IN_FLIGHT + 1)
    seen.append(flooder.crowded)
    server.node.busy = True
    flooder.answered("flooder", MAX_IN_FLIGHT)
    flooder.go_on()
    seen.append(flooder.crowded)
    assert (seen, flooder.waiting > CROWD) == ([False, True, False], True)


def test_nothing_that_waits_goes_on_while_a_client_is_slowed() -> None:
    server = Server()
    flooder = server.session("flooder")
    flooder.slowed = True
    publish(flooder, 1, FEW_WAITING)
    flooder.go_on()
    assert server.node.taken == []
    flooder.slowed = False
    flooder.go_on()
    assert server.node.taken == list(range(1, FEW_WAITING + 1))


def test_messages_may_come_again_once_behind_a_new_connection() -> None:
    node, client, session = played()
    for number in (1, 2, 3):
        session.publish(messages(number))
    session = again(node, client)
    assert [session.publish(messages(number)) for number in (1, 2, 3, 4)] == [True] * 4
    assert [session.publish(messages(number)) for number in (1, 3, 4)] == [False] * 2 + [True]
    assert not session.publish(messages(4))


def test_an_acknowledgement_says_whether_it_is_news() -> None:
    _, _, session = played()
    assert session.feed.acknowledge(0, 10)
    assert not session.feed.acknowledge(0, 10)
    assert session.feed.acknowledge(0, 11)
