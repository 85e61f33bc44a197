"""The report page's script: how its modules are joined, and their own tests under Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from interp.pages import script

NODE = shutil.which("node")
ASSETS = Path(str(resources.files("interp.pages") / "assets"))


@pytest.mark.skipif(NODE is None, reason="needs Node")
def test_the_modules_pass_their_own_tests() -> None:
    tests = sorted(str(path) for path in (Path(__file__).parent / "page").glob("*.test.js"))
    assert NODE is not None
    command = [NODE, "--test", *tests]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout[-3000:]
    passed = re.search(r"^# pass (\d+)$", run.stdout, re.M)
    assert passed is not None
    assert int(passed[1]) >= len(tests)


@pytest.mark.skipif(NODE is None, reason="needs Node")
def test_the_joined_script_can_be_parsed(tmp_path: Path) -> None:
    assert NODE is not None
    (tmp_path / "page.cjs").write_text(script.script(), encoding="utf-8")
    command = [NODE, "--check", str(tmp_path / "page.cjs")]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_every_module_is_joined_and_none_is_long() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in ASSETS.glob("*.js")}
    assert set(files) == set(script.MODULES)
    for name, text in files.items():
        assert text.startswith("// @ts-check\n"), name
        assert text.count("\n") <= 250, name


def test_nothing_in_the_script_ends_or_leaves_its_element() -> None:
    text = script.script()
    assert "</" not in text
    assert "<!--" not in text
    assert not re.search(r"^\s*(import|export)\b", text, re.M)
    assert "@param" not in text


def test_imports_go_and_definitions_stay_in_order() -> None:
    joined = script.join(
        [
            ("a", "// @ts-check\n/** @param {number} x */\nexport const one = (x) => x;\n"),
            ("b", 'import { one } from "./a.js";\nexport async function two() {\n  one(1);\n}\n'),
        ]
    )
    assert joined == (
        '"use strict";\n(() => {\nconst one = (x) => x;\n\nasync function two() {\n  one(1);\n}\n'
        "})();\n"
    )


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([("a", "const x = 1;\n"), ("b", "function x() {}\n")], "x is defined in a.js and in b.js"),
        (
            [("b", 'import { x } from "./a.js";\n'), ("a", "export const x = 1;\n")],
            "b.js imports x",
        ),
        ([("a", "const x = 1;\n"), ("b", 'import { x } from "./a.js";\n')], "b.js imports x"),
        ([("a", "const { x } = y;\n")], "name it first"),
        ([("a", "export default 1;\n")], "not known"),
        ([("a", 'import * as b from "./b.js";\n')], "not known"),
    ],
)
def test_what_cannot_be_joined_is_refused(modules: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        script.join(modules)
