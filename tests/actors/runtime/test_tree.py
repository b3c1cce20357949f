import io
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import Ctx, Ref, Replies, open_system
from actors.runtime.tree import Node, dump_on_signal

USR1 = signal.SIGUSR1


class Planted:
    """A system as far as a dump sees it."""

    def __init__(self, name: str = "main", error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    def tree(self) -> Node:
        if self.error is not None:
            raise self.error
        return Node(self.name, "supervising", children=(Node(f"of {self.name}", "running"),))


PLANTED = "main       supervising\n  of main  running      0/0\n"


@pytest.fixture(autouse=True)
def _the_handler_is_put_back() -> Generator[None, None, None]:
    before = signal.signal(USR1, signal.SIG_IGN)  # a signal too many must not end the test run
    yield
    after = signal.signal(USR1, before)
    assert after == signal.SIG_IGN


def group(*children: Node, name: str = "main") -> Node:
    return Node(name, "supervising", children=children)


# The text.


def test_a_node_alone_is_one_line() -> None:
    assert Node("one", "running").text() == "one  running  0/0"


def test_a_tree_reads_as_indented_aligned_lines() -> None:
    busy = Node("s/1", "running", 12, 64, handling="Add", handling_s=3.21, asks=2, restarts=1, waits_for="store")
    workers = group(Node("w-1", "restarting", restarts=3), Node("w-2", "draining", 1, 3, asks=1), name="workers")
    assert group(busy, workers, Node("store", "running", handling="Put")).text().splitlines() == [
        "main       supervising",
        "  s/1      running      12/64  handling Add for 3.2 s, 2 open asks, 1 restart, waits for store",
        "  workers  supervising",
        "    w-1    restarting   0/0    3 restarts",
        "    w-2    draining     1/3    1 open ask",
        "  store    running      0/0    handling Put",
    ]


def test_str_is_the_text() -> None:
    tree = group(*(Node(f"w{number}", "running") for number in range(200)))
    assert str(tree) == tree.text()
    assert len(str(tree).splitlines()) == 102


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0124, "12 ms"),
        (1.0, "1.0 s"),
        (59.94, "59.9 s"),
        (60.0, "1 min 0 s"),
        (125.9, "2 min 5 s"),
        (3600.0, "1 h 0 min"),
        (100_000.0, "27 h 46 min"),
    ],
)
def test_an_age_is_as_exact_as_it_is_worth(seconds: float, text: str) -> None:
    assert Node("a", "running", handling="M", handling_s=seconds).text() == f"a  running  0/0  handling M for {text}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("s/ünder 日本", "s/ünder 日本"),
        ("back\\slash", "back\\slash"),
        ("", "''"),
        (" padded ", "' padded '"),
        ("two  spaces", "'two  spaces'"),
        ("'quoted'", "\"'quoted'\""),
        ("line\nbreak", r"'line\nbreak'"),
        ("\x1b[2J\x07", r"'\x1b[2J\x07'"),
        ("right\u202eleft\u200b", r"'right\u202eleft\u200b'"),
        ("half\ud800", r"'half\ud800'"),
        ("n" * 161, "n" * 160 + "..."),
        ("\n" * 1000, "'" + r"\n" * 160 + "'..."),
    ],
)
def test_whatever_a_name_or_type_is_it_stays_visible_and_on_its_line(name: str, shown: str) -> None:
    node = Node(name, "running", handling=name, waits_for=name)
    assert node.text() == f"{shown}  running  0/0  handling {shown}, waits for {shown}"


_text = st.text(max_size=12)
_leaves = st.builds(Node, _text, _text, handling=st.none() | _text, waits_for=st.none() | _text)
_trees = st.recursive(
    _leaves, lambda below: st.builds(Node, _text, _text, children=st.lists(below).map(tuple)), max_leaves=5
)


@given(_trees)
def test_any_names_give_one_visible_line_each(tree: Node) -> None:
    def count(node: Node) -> int:
        return 1 + sum(map(count, node.children))

    lines = tree.text(max_children=None).split("\n")
    assert len(lines) == count(tree)
    assert all(line.isprintable() and line == line.rstrip() for line in lines)


def test_wide_and_combining_letters_keep_the_columns_aligned() -> None:
    lines = group(Node("日本", "running"), Node("e\u0301te", "running"), name="x").text().splitlines()
    assert lines == ["x       supervising", "  日本  running      0/0", "  e\u0301te   running      0/0"]


def test_one_long_name_does_not_push_the_others_off_the_screen() -> None:
    lines = group(Node("n" * 100, "running"), Node("short", "running")).text().splitlines()
    assert lines == ["main     supervising", f"  {'n' * 100}  running      0/0", "  short  running      0/0"]


def test_names_that_are_all_long_are_shown_too() -> None:
    assert Node("n" * 100, "running").text() == f"{'n' * 100}  running  0/0"


@pytest.mark.parametrize(
    "interesting",
    [
        Node("x", "running", depth=1),
        Node("x", "running", asks=1),
        Node("x", "running", handling="M"),
        Node("x", "running", waits_for="y"),
        Node("x", "stopping"),
        group(name="x"),
    ],
)
def test_a_cut_leaves_the_idle_out_first_and_says_how_many(interesting: Node) -> None:
    idle = [Node(f"w{number}", "running", peak=4, restarts=1) for number in range(10_000)]
    names = [line.split()[0] for line in group(*idle, interesting).text(max_children=3).splitlines()]
    assert names == ["main", "w0", "w1", "x", "..."]
    assert group(*idle).text(max_children=3).splitlines()[-1] == "  ... 9997 more not shown, all idle"
    assert group(*idle).text(max_children=0).splitlines() == [
        "main  supervising",
        "  ... 10000 more not shown, all idle",
    ]


def test_a_cut_says_how_many_of_the_hidden_are_not_idle() -> None:
    busy = [Node(f"w{number}", "running", depth=number % 2) for number in range(10)]
    assert [line.split()[0] for line in group(*busy).text(max_children=3).splitlines()[1:-1]] == ["w1", "w3", "w5"]
    assert group(*busy).text(max_children=3).splitlines()[-1] == "  ... 7 more not shown, 2 of them not idle"


def test_each_level_is_cut_on_its_own_and_nothing_is_without_need() -> None:
    tree = group(group(*[Node("w", "running")] * 3, name="a"), group(*[Node("w", "running")] * 2, name="b"))
    assert [line.strip() for line in tree.text(max_children=2).splitlines()] == [
        "main   supervising",
        "a    supervising",
        "w  running      0/0",
        "w  running      0/0",
        "... 1 more not shown, all idle",
        "b    supervising",
        "w  running      0/0",
        "w  running      0/0",
    ]
    assert len(group(*[Node("w", "running")] * 5000).text(max_children=None).splitlines()) == 5001
    with pytest.raises(ValueError, match=r"^max_children must be 0 or more, or None for all, not -1$"):
        tree.text(max_children=-1)


def test_supervisors_may_nest_deeper_than_calls_do() -> None:
    tree = Node("leaf", "running")
    for level in range(5000):
        tree = group(tree, name=str(level))
    assert len(tree.text().splitlines()) == 5001


def test_a_supervisor_has_no_mailbox_to_show_in_any_state() -> None:
    tree = group(Node("sup", "stopping", children=(Node("w", "stopping"),), restarts=1), Node("empty", "supervising"))
    assert tree.text().splitlines() == [
        "main     supervising",
        "  sup    stopping          1 restart",
        "    w    stopping     0/0",
        "  empty  supervising",
    ]


async def test_a_system_says_what_everybody_is_waiting_for_r24(autojump_clock: MockClock) -> None:
    class Get(Replies[int]):
        pass

    async def hang(ctx: Ctx[Get]) -> None:
        async for _ in ctx:
            await trio.sleep_forever()

    async def front(ctx: Ctx[str], store: Ref[Get]) -> None:
        async for _ in ctx:
            await store.ask(Get())

    async with open_system(name="main") as system:
        store = await system.spawn(hang, name="store")
        shop = await (await system.supervise(name="shop")).spawn(front, store, name="front")
        shop.tell("now")
        await trio.sleep(90)
        shop.tell("then")
        assert str(system.tree()).splitlines() == [
            "main       supervising",
            "  store    running      0/0  handling Get for 1 min 30 s, 1 open ask",
            "  shop     supervising",
            "    front  running      1/1  handling str for 1 min 30 s, waits for store",
        ]


# The dump.


def test_the_tree_is_written_each_time_the_signal_comes_r24() -> None:
    file = io.StringIO()
    with dump_on_signal(Planted(), USR1, file=file):
        signal.raise_signal(USR1)
        assert file.getvalue() == PLANTED
        signal.raise_signal(USR1)
    assert file.getvalue() == PLANTED * 2


async def test_a_system_is_dumped_while_an_actor_spins_and_nothing_else_runs_r24() -> None:
    file = io.StringIO()

    async def spin(ctx: Ctx[int]) -> None:
        async for _ in ctx:
            threading.Thread(target=os.kill, args=(os.getpid(), USR1)).start()
            patience = time.monotonic() + 10
            while not file.getvalue().endswith("\n") and time.monotonic() < patience:
                pass

    async with open_system(name="main") as system:
        ref = await system.spawn(spin, name="spinner")
        await system.spawn(spin, name="other")
        with dump_on_signal(system, USR1, file=file):
            ref.tell(1)
            ref.tell(2)
            ref.drain()
            await ref.join()
        first, spinner, other, *_ = file.getvalue().splitlines()
        assert first == "main       supervising"
        assert spinner.split()[:5] == ["spinner", "draining", "1/1", "handling", "int"]
        assert other.split() == ["other", "running", "0/0"]


async def test_a_signal_that_comes_while_all_wait_is_answered_too_r24() -> None:
    read, write = os.pipe()
    async with open_system(name="main") as system:
        with os.fdopen(write, "w") as file, dump_on_signal(system, USR1, file=file):
            async with trio.lowlevel.FdStream(read) as stream:
                # Only once the loop waits for the pipe does anything happen: the signal ends that wait.
                await wait_all_tasks_blocked()
                threading.Thread(target=os.kill, args=(os.getpid(), USR1)).start()
                with trio.fail_after(10):
                    assert await stream.receive_some() == b"main  supervising\n"


def test_without_a_file_it_goes_to_stderr_as_it_is_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with dump_on_signal(Planted(), USR1):
        signal.raise_signal(USR1)
        assert capsys.readouterr().err == PLANTED
        later = io.StringIO()
        monkeypatch.setattr(sys, "stderr", later)
        signal.raise_signal(USR1)
        monkeypatch.setattr(sys, "stderr", None)
        signal.raise_signal(USR1)
    assert later.getvalue() == PLANTED


def test_the_earlier_handler_is_put_back_however_the_block_ends() -> None:
    def mine(_: int, __: FrameType | None) -> None:
        raise AssertionError

    signal.signal(USR1, mine)
    with dump_on_signal(Planted(), USR1, file=io.StringIO()):
        signal.raise_signal(USR1)  # not given to the earlier one
    assert signal.getsignal(USR1) is mine
    with pytest.raises(KeyError), dump_on_signal(Planted(), USR1):
        raise KeyError
    assert signal.getsignal(USR1) is mine
    signal.signal(USR1, signal.SIG_IGN)


def test_blocks_nest_and_each_writes_its_own_system() -> None:
    outer, inner = io.StringIO(), io.StringIO()
    with dump_on_signal(Planted(), USR1, file=outer):
        with dump_on_signal(Planted("other"), USR1, file=inner), dump_on_signal(Planted("third"), signal.SIGUSR2):
            signal.raise_signal(USR1)
        assert (outer.getvalue(), inner.getvalue().split()[0]) == (PLANTED, "other")
        signal.raise_signal(USR1)
    assert outer.getvalue() == PLANTED * 2
    assert len(inner.getvalue().splitlines()) == 2


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_blocks_may_end_in_any_order(order: str) -> None:
    files = {key: io.StringIO() for key in "abc"}
    blocks = {key: dump_on_signal(Planted(key), USR1, file=file) for key, file in files.items()}
    for block in blocks.values():
        block.__enter__()
    expected = dict.fromkeys("abc", 0)
    for key in order:
        signal.raise_signal(USR1)
        expected |= {open_key: expected[open_key] + 1 for open_key in order[order.index(key) :]}
        blocks[key].__exit__(None, None, None)
        assert {name: file.getvalue().count("supervising") for name, file in files.items()} == expected
    assert signal.getsignal(USR1) == signal.SIG_IGN


def test_a_handler_that_was_put_over_it_is_left_and_may_put_it_back_later() -> None:
    seen: list[str] = []
    file = io.StringIO()
    signal.signal(USR1, lambda *_: seen.append("first"))
    with dump_on_signal(Planted(), USR1, file=file):
        put_over = signal.signal(USR1, lambda *_: seen.append("second"))
    signal.raise_signal(USR1)
    assert seen == ["second"]
    signal.signal(USR1, put_over)
    signal.raise_signal(USR1)
    signal.raise_signal(USR1)
    assert (seen, file.getvalue()) == (["second", "first", "first"], "")
    signal.signal(USR1, signal.SIG_IGN)


def test_another_thread_is_told_that_it_cannot() -> None:
    raised: list[str] = []

    def elsewhere() -> None:
        with pytest.raises(RuntimeError) as caught, dump_on_signal(Planted(), USR1):
            pass
        raised.append(str(caught.value))

    thread = threading.Thread(target=elsewhere, name="side")
    thread.start()
    thread.join()
    assert raised == ["dump_on_signal works in the main thread only, where signals are handled; this is 'side'"]


def test_a_handler_that_could_not_be_put_back_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    with (
        pytest.raises(
            RuntimeError,
            match=rf"^signal {int(USR1)} has a handler that is not Python's own, and could not be put back$",
        ),
        dump_on_signal(Planted(), int(USR1)),
    ):
        pass


def test_a_signal_that_cannot_be_handled_is_refused() -> None:
    with pytest.raises(OSError), dump_on_signal(Planted(), signal.SIGKILL):
        pass
    with pytest.raises(ValueError), dump_on_signal(Planted(), 10_000):
        pass


def test_what_the_rendering_raises_is_said_on_the_file_and_goes_no_further() -> None:
    file = io.StringIO()
    with dump_on_signal(Planted(error=RuntimeError("no loop\n")), USR1, file=file):
        signal.raise_signal(USR1)
    assert file.getvalue() == "the tree of 'main' could not be had: RuntimeError('no loop\\n')\n"


def test_a_dump_with_no_stack_left_breaks_nothing() -> None:
    def signal_at(depth: int) -> None:
        if depth:
            signal_at(depth - 1)
        else:
            signal.raise_signal(USR1)

    def deepest(handler: Callable[[int, FrameType | None], None]) -> int:
        signal.signal(USR1, handler)
        for depth in itertools.count():
            try:
                signal_at(depth)
            except RecursionError:
                signal.signal(USR1, signal.SIG_IGN)
                return depth - 1
        raise AssertionError

    class Empty:  # an object, as the handler is one: to call it takes more stack than to call a function
        def __call__(self, _: int, __: FrameType | None) -> None:
            pass

    there = deepest(Empty())
    with dump_on_signal(Planted(), USR1, file=io.StringIO()):
        signal_at(there)


def _closed() -> io.StringIO:
    file = io.StringIO()
    file.close()
    return file


def _ascii() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")


@pytest.mark.parametrize("make", [_closed, _ascii])
def test_a_file_that_refuses_breaks_nothing(make: Callable[[], io.StringIO | io.TextIOWrapper]) -> None:
    file = make()
    with dump_on_signal(Planted("日"), USR1, file=file):
        signal.raise_signal(USR1)
    if isinstance(file, io.TextIOWrapper):  # what it cannot encode, it shows
        file.seek(0)
        assert file.read().startswith("\\u65e5")


def test_a_signal_in_the_middle_of_a_write_to_the_same_file_is_written_as_well(tmp_path: Path) -> None:
    class Slow(io.FileIO):
        """Takes what it is given, and the signal with it, as a write to a slow terminal does."""

        def write(self, data: object, /) -> int:
            signal.raise_signal(USR1)
            return super().write(data)  # type: ignore[arg-type]

    path = tmp_path / "log"
    with io.TextIOWrapper(io.BufferedWriter(Slow(path, "w")), encoding="utf-8") as file:
        with dump_on_signal(Planted(), USR1, file=file):
            file.write("mine\n")
            file.flush()
    assert path.read_text() == PLANTED + "mine\n"
