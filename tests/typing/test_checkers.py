"""What the files beside this one say about types holds for both checkers, and each of their wrong lines is found."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = [path for path in sorted(HERE.glob("*.py")) if not path.name.startswith("test_")]


def check(checker: str, *arguments: str) -> str:
    """Return what a checker that finds nothing says."""
    if find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    command = [sys.executable, "-m", checker, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_mypy_agrees_r15(tmp_path: Path) -> None:
    said = check("mypy", "--strict", "--cache-dir", str(tmp_path), *map(str, FILES))
    assert said == f"Success: no issues found in {len(FILES)} source files\n"


def test_pyright_agrees_r15(tmp_path: Path) -> None:
    settings = {
        "typeCheckingMode": "strict",
        # Else mypy's comment would be taken for an ignore of this one too, and would do for each line.
        "enableTypeIgnoreComments": False,
        "include": [str(path) for path in FILES],
        "extraPaths": [str(ROOT)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    said = check("basedpyright", "--pythonpath", sys.executable, "--project", str(tmp_path))
    assert "0 errors, 0 warnings, 0 notes" in said


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_both_checkers_are_asked_about_each_wrong_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    # Without this, or without one of the two comments, a checker that finds nothing wrong with a line would be silent.
    assert text.startswith("# pyright: strict, reportUnnecessaryTypeIgnoreComment=true\n")
    wrong = [line for line in text.splitlines()[1:] if "ignore[" in line]
    assert len(wrong) > 20
    both = re.compile(r"  # type: ignore\[[\w-]+\]  # pyright: ignore\[\w+\]$")
    assert [line for line in wrong if not both.search(line)] == []
