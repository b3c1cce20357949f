"""The page on actors: its code runs, prints and logs what is below it, and its reference has what there is."""

import ast
import inspect
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from actors import runtime
from actors.testing import run

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "actors.md").read_text(encoding="utf-8")
TUTORIAL, REFERENCE = PAGE.split("\n# Reference\n")
#: The page with blank lines instead of what is no Python, so that lines have the numbers they have there.
CODE = "".join(
    part if number % 2 else "\n" * part.count("\n")
    for number, part in enumerate(re.split(r"```python(\n.*?)```", PAGE, flags=re.DOTALL))
)
SHOWN = re.findall(r"<!-- (prints|logs): (\w+) -->\n```text\n(.*?)```", PAGE, re.DOTALL)
#: Of these, a thread is waited for: a virtual clock would not.
REAL = {"from_a_thread"}


@pytest.fixture(scope="module")
def page() -> Iterator[dict[str, Any]]:
    module = ModuleType("page")
    # Structs look their module up.
    sys.modules["page"] = module
    exec(compile(CODE, "docs/actors.md", "exec"), module.__dict__)
    yield module.__dict__
    del sys.modules["page"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("what", "name", "text"), SHOWN, ids=[f"{name}-{what}" for what, name, _ in SHOWN])
def test_each_program_prints_and_logs_what_is_shown(
    what: str,
    name: str,
    text: str,
    seed: int,
    page: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    program: Callable[[], Coroutine[Any, Any, None]] = page[name]
    with caplog.at_level(logging.INFO, "actors.runtime"):
        run(program, seed=seed, clock="real" if name in REAL else "virtual")
    if what == "prints":
        assert capsys.readouterr().out == text
    else:
        assert [f"{record.levelname} {record.getMessage()}" for record in caplog.records] == text.splitlines()


def test_every_program_is_shown_with_what_it_prints() -> None:
    functions = re.findall(r"^async def (\w+)\(\) -> None:", CODE, re.MULTILINE)
    assert [name for what, name, _ in SHOWN if what == "prints"] == functions
    assert TUTORIAL.count("```text\n") == len(SHOWN)


def test_the_code_stands_before_the_reference_and_links_lead_somewhere() -> None:
    assert "```python" not in REFERENCE
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert [anchor for anchor in re.findall(r"\]\(#([\w-]+)\)", PAGE) if anchor not in anchors] == []
    files = re.findall(r"\]\(([\w./-]+\.md)\)", PAGE)
    assert [name for name in files if not (ROOT / "docs" / name).exists()] == []


# The reference.


def _tables() -> Iterator[tuple[type[Any], str]]:
    """Yield each class that has a table of its members, with each code span of the first cells."""
    for table in re.findall(r"(?:^\|.*\n)+", REFERENCE, re.MULTILINE):
        head, _, *rows = table.splitlines()
        found = re.match(r"\| `(\w+)` \| \|$", head)
        if found is not None:
            for row in rows:
                for span in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
                    yield getattr(runtime, found[1]), span


def _call(span: str) -> tuple[str, ast.arguments | None]:
    """Return the name, and the arguments if it is a call."""
    plain = re.sub(r"^(async with|with|await) | as \w+$", "", span)
    name, bracket, arguments = plain.partition("(")
    if not bracket:
        return name, None
    statement = ast.parse(f"def {name}({arguments}: pass").body[0]
    assert isinstance(statement, ast.FunctionDef)
    return name, statement.args


MEMBERS = [
    (kind, *_call(span)) for kind, span in _tables() if not re.search(r" in | for |^len|^async for|^for ", span)
]
CALLS = [(kind, name, arguments) for kind, name, arguments in MEMBERS if arguments is not None]


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in runtime.__all__ if not re.search(rf"\b{name}\b", PAGE)] == []


def test_every_member_in_the_reference_is_there() -> None:
    assert len({kind for kind, _, _ in MEMBERS}) == 7
    system = {"registry", "dead_letters", "threads", "name", "grace_s", "open_system"}
    supervisor = {"name", "policy"}
    own = {runtime.System: system, runtime.Supervisor: supervisor}
    missing = [
        f"{kind.__name__}.{name}"
        for kind, name, _ in MEMBERS
        if not hasattr(kind, name) and name not in own.get(kind, set())
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("kind", "name", "arguments"), CALLS, ids=[f"{kind.__name__}.{name}" for kind, name, _ in CALLS]
)
def test_the_arguments_in_the_reference_are_those_of_the_code(
    kind: type[Any], name: str, arguments: ast.arguments
) -> None:
    function = runtime.open_system if name == "open_system" else getattr(kind, name)
    hidden = ("self", "kind")  # `stop(kind=)` is the runtime's
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name not in hidden]
    shown = [*arguments.args, *([arguments.vararg] if arguments.vararg else []), *arguments.kwonlyargs]
    assert [each.arg for each in shown] == [each.name for each in parameters]
    values = [ast.unparse(each) for each in (*arguments.defaults, *arguments.kw_defaults) if each is not None]
    real = [each.default for each in parameters if each.default is not inspect.Parameter.empty]
    assert [value.replace("math.inf", "inf") for value in values] == [repr(value) for value in real]


@pytest.mark.parametrize(
    "kind",
    [runtime.Ref, runtime.Ctx, runtime.DeadLetters, runtime.Timer, runtime.ChildTask],
    ids=lambda it: it.__name__,
)
def test_every_method_is_in_the_reference(kind: type[Any]) -> None:
    def is_public(name: str) -> bool:
        # What the runtime keeps for itself says so.
        said = vars(kind)[name].__doc__ or "runtime"
        return not name.startswith("_") and not re.search(r"runtime|by the wheel", said)

    missing = [name for name in vars(kind) if is_public(name) and not re.search(rf"`(await )?{name}\b", REFERENCE)]
    assert missing == []


@pytest.mark.parametrize(
    "kind",
    [
        runtime.Backoff, runtime.Crash, runtime.DeadLetter, runtime.Down, runtime.MailboxStatistics, runtime.Node,
        runtime.SystemStatistics,
    ],
    ids=lambda it: it.__name__,
)  # fmt: skip
def test_every_field_is_in_the_reference(kind: type[Any]) -> None:
    names = [name for name in kind.__annotations__ if name != "draw"]
    spans = " ".join(re.findall(r"`[^`]*`", re.sub(r"```.*?```", "", REFERENCE, flags=re.DOTALL)))
    assert [name for name in names if not re.search(rf"\b{name}\b", spans)] == []


def test_the_words_of_the_enums_are_in_the_reference() -> None:
    enums = runtime.DownKind, runtime.Strategy, runtime.Restart, runtime.Lost, runtime.Budget
    assert [str(word) for enum in enums for word in enum if not re.search(rf"\b{word}\b", REFERENCE)] == []


def test_every_error_is_in_the_table_with_its_attributes() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([\w ]+)` \|", REFERENCE.split("### Errors")[1], re.MULTILINE))
    errors = {
        name: kind
        for name, kind in vars(runtime).items()
        if isinstance(kind, type) and issubclass(kind, runtime.ActorError) and kind is not runtime.ActorError
    }
    wanted = {name: " ".join(list(inspect.signature(kind).parameters)) for name, kind in errors.items()}
    assert rows == wanted


# The README.


def test_the_example_in_the_readme_prints_a_sum(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"<!-- actors -->\n```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    namespace: dict[str, Any] = {"__name__": "readme"}
    exec(compile(found[1], "README.md", "exec"), namespace)
    run(namespace["main"])
    assert capsys.readouterr().out == "42\n"


# Type checkers.


def test_mypy_finds_nothing_in_the_code_of_the_page(tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (tmp_path / "page.py").write_text(CODE)
    command = [sys.executable, "-m", "mypy", "--config-file", "", "--cache-dir", str(tmp_path / "cache"), "--strict"]
    done = subprocess.run(
        [*command, "page.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("page.py")] == [], done.stderr


def test_pyright_finds_nothing_in_the_code_of_the_page(tmp_path: Path) -> None:
    if find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    (tmp_path / "page.py").write_text(CODE)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": ["page.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout
