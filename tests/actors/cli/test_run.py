"""`actors run`, whole: a real gateway, a real client, in this process; the terminal in one of its own."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.cli import main
from actors.stores.lock import StoreLock

TASK = "# Release\n\n- Look around\n- Which channel?\n  - stable\n  - beta\n- Tag it\n"


@pytest.fixture
def task(tmp_path: Path) -> str:
    path = tmp_path / "task.md"
    path.write_text(TASK)
    return str(path)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield


def answers(tmp_path: Path, content: object) -> str:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_a_task_runs_to_its_end_with_answers_from_a_file(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", task, "--answers", answers(tmp_path, {"Which channel?": "beta"})]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "✔ Look around\n" in out
    assert "? Which channel?\n  beta\n" in out
    assert out.rstrip().splitlines()[-1].startswith("✔ completed · 3 of 3 done")
    assert "\x1b" not in out


def test_without_anybody_to_answer_the_run_ends_at_once(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", task]) == 3
    out, err = capsys.readouterr()
    assert err == (
        "actors: no_responder: nobody answered 'Which channel?'; give it in --answers FILE, or run on a terminal\n"
    )
    assert "? Which channel?\n  (cancelled)\n■ Which channel?\n○ Tag it\n■ cancelled" in out


@pytest.mark.parametrize("content", [{"Which colour?": "red"}, [], {"which channel?": "beta"}])
def test_an_answer_file_without_the_question_answers_nothing(
    task: str, tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", task, "--answers", answers(tmp_path, content)]) == 3
    assert "nobody answered 'Which channel?'" in capsys.readouterr().err


def test_an_unusable_file_is_told_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "missing.md"
    assert main(["run", str(path)]) == 2
    assert capsys.readouterr().err == f"actors: cannot read {path}: No such file or directory\n"


def test_a_failed_run_says_code_and_message(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", task, "--max-turns", "1"]) == 1
    assert capsys.readouterr().err.startswith("actors: run.max_turns: ")


def test_a_list_that_takes_more_turns_than_usual_runs_with_more_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.md"
    path.write_text("".join(f"- Step {n}\n- Question {n}?\n" for n in range(40)))
    given = answers(tmp_path, ["yes"] * 40)
    assert main(["run", str(path), "--answers", given, "--max-turns", "100"]) == 0
    assert "✔ completed · 80 of 80 done" in capsys.readouterr().out


def test_an_agent_of_ones_own_is_used(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent_that_fails.py").write_text(
        "from actors import ModelError, open_agent\n"
        "class Broken:\n"
        "    async def stream(self, request):\n"
        "        raise ModelError('no key\\x1b[2J', code='model.no_key')\n"
        "        yield\n"
        "def make(): return open_agent(Broken())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["run", task, "--agent", "agent_that_fails:make"]) == 1
    assert capsys.readouterr().err == "actors: model.no_key: no key␛[2J\n"


class OnTerminal:
    """The command on a pseudo terminal."""

    def __init__(self, *argv: str, cwd: Path | None = None) -> None:
        self.master, self.slave = os.openpty()
        self.modes = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "actors", *argv],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            cwd=cwd, env={**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "24", "PYTHONUTF8": "1",
                          "PYTHONPATH": str(Path(__file__).parents[3])},
        )  # fmt: skip
        self.raw = b""

    @property
    def screen(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace"))

    def wait_shown(self, text: str) -> None:
        deadline = time.monotonic() + 30
        while text not in self.screen:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} was not shown within 30 s:\n{self.screen}"
            self.raw += os.read(self.master, 65_536)

    def drop(self) -> None:
        """Forget what was shown so far."""
        while select.select([self.master], [], [], 0)[0]:
            os.read(self.master, 65_536)
        self.raw = b""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def close(self) -> int:
        """Wait for the end and return the exit code; the rest of the output is read meanwhile."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.02)[0]:
                self.raw += os.read(self.master, 65_536)
        while select.select([self.master], [], [], 0)[0]:
            self.raw += os.read(self.master, 65_536)
        restored = termios.tcgetattr(self.slave) == self.modes
        self.process.kill()
        code = self.process.wait()
        os.close(self.master)
        os.close(self.slave)
        assert restored, "the terminal's modes were not put back"
        return code


def test_on_a_terminal_questions_are_answered_by_typing(task: str) -> None:
    terminal = OnTerminal("run", task)
    terminal.wait_shown("  2  beta")
    terminal.type("2\r")
    assert terminal.close() == 0
    assert "completed · 3 of 3 done" in terminal.screen


def test_ctrl_c_cancels_the_run_and_leaves_nothing_behind(task: str) -> None:
    terminal = OnTerminal("run", task)
    terminal.wait_shown("  2  beta")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.close() == 130
    assert "cancelled · 1 of 3 done" in terminal.screen
    assert "Traceback" not in terminal.screen


def test_a_stopped_command_gives_the_terminal_back_and_goes_on_afterwards(task: str) -> None:
    terminal = OnTerminal("run", task)
    terminal.wait_shown("  2  beta")
    os.kill(terminal.process.pid, signal.SIGTSTP)
    _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert termios.tcgetattr(terminal.slave) == terminal.modes
    terminal.drop()
    os.kill(terminal.process.pid, signal.SIGCONT)
    terminal.wait_shown("  2  beta")
    terminal.type("2\r")
    assert terminal.close() == 0


def test_a_second_ctrl_c_ends_what_does_not_end_by_itself(task: str, tmp_path: Path) -> None:
    (tmp_path / "agent_that_hangs.py").write_text(
        "import time\n"
        "from actors import ScriptedModel, open_agent, tool\n"
        "from actors.models.scripted import call\n"
        "@tool\n"
        "def dig() -> str:\n"
        "    '''Dig.'''\n"
        "    time.sleep(600)\n"
        "    return ''\n"
        "def make(): return open_agent(ScriptedModel([call('dig', {})]), tools=[dig])\n"
    )
    terminal = OnTerminal("run", task, "--agent", "agent_that_hangs:make", cwd=tmp_path)
    terminal.wait_shown("dig…")
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.wait_shown("cancelling…")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.close() == 130


# ---- a store


def test_a_run_in_a_store_can_be_looked_at_and_its_session_goes_on(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "runs.db")
    argv = ["run", task, "--answers", answers(tmp_path, {"Which channel?": "beta"}), "--session", "release"]
    assert main([*argv, "--store", store]) == 0
    assert capsys.readouterr().err == f"session release in {store}\n"
    assert main([*argv, "--store", store]) == 0
    assert capsys.readouterr().err == f"session release in {store}\n"
    assert main(["sessions", "show", "release", "--store", store]) == 0
    assert capsys.readouterr().out.count("? Which channel?\n  beta\n") == 2


def test_a_run_that_was_killed_goes_on_where_it_was(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "runs.db"

    async def interrupted() -> None:
        from actors.cli.agents import default_agent
        from actors.stores import SqliteStore

        async with default_agent(store=SqliteStore(store)) as agent:
            await agent.session("release").prompt(TASK)
            await trio.testing.wait_all_tasks_blocked()

    trio.run(interrupted)
    argv = ["run", task, "--answers", answers(tmp_path, {"Which channel?": "beta"}), "--session", "release"]
    assert main([*argv, "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[1] == f"it goes on where it was interrupted; {task} is not sent"
    assert "? Which channel?\n  beta\n" in out
    assert out.rstrip().splitlines()[-1].startswith("✔ completed · 3 of 3 done")
    assert main(["sessions", "show", "release", "--store", str(store)]) == 0
    assert capsys.readouterr().out.count("> ") == 1


def test_a_run_in_a_store_that_a_server_has_says_so(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "runs.db"
    with StoreLock(Path(f"{store}.lock")):
        assert main(["run", task, "--store", str(store)]) == 2
    assert capsys.readouterr().err == (
        f"actors: store {store} is in use by process {os.getpid()}; a store has one owner at a time\n"
    )
    assert main(["run", task, "--store", str(store), "--agent", "time:monotonic"]) == 2
