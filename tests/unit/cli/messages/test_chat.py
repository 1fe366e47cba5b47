"""What counts as out of order in the demonstration of ``thence chat``, on conversations that are made up here."""

from __future__ import annotations

from thence.cli.messages.chat_demo import HOMES, SCRIPT, Conversation, SeenLine, frame


def text(number: int) -> str:
    return SCRIPT[number - 1].text


def test_the_script_is_one_that_people_can_follow() -> None:
    assert len({said.text for said in SCRIPT}) == len(SCRIPT), "a line is known by its text"
    assert {said.author for said in SCRIPT} == set(HOMES)
    assert [number for number, said in enumerate(SCRIPT, start=1) if (said.answers or 0) >= number] == []


def test_what_led_to_a_line_is_what_its_author_had_seen_and_said_and_what_led_to_that() -> None:
    talk = Conversation("fifo")
    talk.speaks("ada", 1)
    assert talk.sees("bob", text(1)) == 1
    talk.speaks("bob", 2)
    talk.sees("dan", text(2))  # Without line 1, which led to it.
    talk.speaks("dan", 3)
    talk.sees("cyd", text(3))
    talk.sees("cyd", text(1))
    talk.sees("cyd", text(2))
    assert talk.seen["dan"] == [SeenLine(2, (1,))]
    assert talk.seen["cyd"] == [SeenLine(3, (1, 2)), SeenLine(1, ()), SeenLine(2, ())]
    assert (talk.deliveries, talk.out_of_order, talk.early_answers) == (5, 2, 2)
    assert not talk.is_over


def test_lines_that_do_not_know_of_each_other_may_come_in_any_order() -> None:
    talk = Conversation("vector")
    talk.speaks("ada", 1)
    talk.speaks("dan", 3)
    talk.sees("cyd", text(3))
    talk.sees("cyd", text(1))
    assert talk.out_of_order == 0


def test_what_came_too_early_is_marked() -> None:
    good, bad = Conversation("vector"), Conversation("fifo")
    for talk, order in ((good, (1, 2)), (bad, (2, 1))):
        talk.speaks("ada", 1)
        talk.sees("bob", text(1))
        talk.speaks("bob", 2)
        for number in order:
            talk.sees("cyd", text(number))
    _, table = frame(good, bad)
    left, right = ([str(cell) for cell in column.cells] for column in table.columns)  # type: ignore[union-attr]
    assert left == [" 1 ada: Shall we meet at ten?", " 2 bob to 1: Ten is too early for me."]
    assert right == [" 2 bob to 1: Ten is too early for me.  << before its question", " 1 ada: Shall we meet at ten?"]
