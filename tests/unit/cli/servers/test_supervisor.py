"""How ``thence up`` looks after its servers: when one is started again, when it stays down, what is said. No processes here."""

from __future__ import annotations

from thence.cli.servers.supervisor import FIRST_PAUSE_S, MAX_QUICK_DEATHS, QUICK_S, Supervisor


class Played:
    """Servers that end as the test says, and a clock that it sets."""

    def __init__(self, *names: str, forgetful: bool = False) -> None:
        self.at = 0.0
        self.codes: dict[str, int | None] = dict.fromkeys(names)
        self.started: list[tuple[float, str]] = []
        self.said: list[str] = []
        self.supervisor = Supervisor(self, names, forgetful=forgetful, clock=lambda: self.at, say=self.said.append)

    def start_one(self, name: str) -> None:
        self.started.append((self.at, name))
        self.codes[name] = None

    def exit_code(self, name: str) -> int | None:
        return self.codes[name]

    def end(self, name: str, code: int, *, after_s: float = 1.0) -> None:
        """Let a server end some time after now."""
        self.at += after_s
        self.codes[name] = code
        self.supervisor.look()

    def wait(self, seconds: float) -> bool:
        self.at += seconds
        return self.supervisor.look()


def test_nothing_happens_while_all_run() -> None:
    played = Played("s1", "s2")
    assert played.wait(1_000)
    assert (played.started, played.said, played.supervisor.exit_code) == ([], [], 0)


def test_one_that_ends_is_started_again_and_the_others_are_left_alone() -> None:
    played = Played("s1", "s2")
    played.end("s2", -9)
    assert played.said == ["s2 was ended by SIGKILL: it is started again in 0.5 s, and the others go on"]
    played.wait(FIRST_PAUSE_S / 2)
    assert played.started == []
    assert played.wait(FIRST_PAUSE_S / 2)
    assert played.started == [(1.5, "s2")]
    assert played.supervisor.exit_code == 1


def test_one_that_ends_at_once_again_and_again_stays_down_and_the_others_go_on() -> None:
    played = Played("s1", "s2")
    for _ in range(MAX_QUICK_DEATHS):
        played.end("s2", 2)
        assert played.wait(100)
    pauses = [FIRST_PAUSE_S * 2**death for death in range(MAX_QUICK_DEATHS - 1)]
    assert [said.partition(": ")[2] for said in played.said[:-1]] == [
        f"it is started again in {pause:g} s, and the others go on" for pause in pauses
    ]
    assert played.said[-1].startswith(
        "s2 has ended with exit code 2, for the 4th time in a row within 10 s of its start: it stays down"
    )
    assert len(played.started) == MAX_QUICK_DEATHS - 1
    assert played.wait(1_000)
    assert len(played.said) == MAX_QUICK_DEATHS
    assert played.supervisor.exit_code == 2


def test_one_that_ran_for_a_while_begins_anew() -> None:
    played = Played("s1")
    for _ in range(3 * MAX_QUICK_DEATHS):
        played.end("s1", 1, after_s=QUICK_S + 1)
        assert played.said[-1] == "s1 has ended with exit code 1: it is started again in 0.5 s, and the others go on"
        assert played.wait(FIRST_PAUSE_S)
    assert len(played.started) == 3 * MAX_QUICK_DEATHS


def test_one_that_was_told_to_stop_stays_down_and_with_the_last_it_is_over() -> None:
    played = Played("s1", "s2")
    played.end("s1", 0)
    assert played.said == ["s1 has ended with exit code 0: it was told to stop, and stays down; the others go on"]
    assert played.wait(1_000)
    played.end("s2", 0)
    assert not played.wait(1)
    assert (played.started, played.supervisor.exit_code) == ([], 0)


def test_one_that_has_forgotten_everything_stays_down_unless_it_is_alone() -> None:
    played = Played("s1", "s2", forgetful=True)
    played.end("s1", -11)
    assert played.said == [
        "s1 was ended by SIGSEGV. It kept nothing on disk, so its peers would refuse it: it stays down. Start all anew"
    ]
    assert played.wait(1_000)
    assert (played.started, played.supervisor.exit_code) == ([], 2)
    alone = Played("s1", forgetful=True)
    alone.end("s1", -11)
    alone.wait(FIRST_PAUSE_S)
    assert alone.started == [(1.5, "s1")]
