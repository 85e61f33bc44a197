"""The page's one script and style sheet, made of the small files in `assets/`.

The script is written as ES modules, so that `node --test` can import them one by one; the page has
them joined, in an order in which each stands after all that it imports, without their `import` and
`export`. All names are then in one scope, so each may be defined only once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

MODULES = (
    "text", "decode", "palette", "layout", "scales", "state", "dom", "passage", "mapplan",
    "colourbar", "crosshair", "heatmap", "axes", "rows", "points", "series", "lines", "marks",
    "explain", "explorer", "headfacts", "atlas", "headcard", "main",
)  # fmt: skip
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.M)
DEFINITION = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|const|let|class) (\w+|[{\[])", re.M
)
ANY_IMPORT_OR_EXPORT = re.compile(r"^\s*(?:import|export)\b", re.M)
TYPES = re.compile(r"^ *// @ts-check\n|^ */\*\*(?:(?!\*/).)*\*/\n", re.M | re.S)  # for the checker


def script() -> str:
    """Returns the page's script."""
    return join([(name, asset(f"{name}.js")) for name in MODULES])


def css() -> str:
    """Returns the page's style sheet."""
    return asset("report.css")


def join(modules: Sequence[tuple[str, str]]) -> str:
    """Returns modules (name, text) as one script that defines no global names.

    Raises:
        ValueError: a module imports what does not stand before it, or in another form than
            `import { a, b } from "./module.js"`; a name is defined twice.
    """
    exported: dict[str, set[str]] = {}
    defined: dict[str, str] = {}
    parts = []
    for name, text in modules:
        for names, source in IMPORT.findall(text):
            wanted = {one.strip() for one in names.split(",")} - {""}
            unknown = sorted(wanted - exported.get(source, set()))
            if unknown:
                raise ValueError(f"{name}.js imports {', '.join(unknown)} from {source}.js, which "
                                 "does not stand before it with such an export")  # fmt: skip
        body = IMPORT.sub("", text)
        for one in DEFINITION.findall(body):
            if one in defined:
                raise ValueError(f"{one} is defined in {defined[one]}.js and in {name}.js")
            if one in "{[":
                raise ValueError(f"{name}.js takes apart a value at its top; name it first")
            defined[one] = name
        exported[name] = set(re.findall(r"^export (?:async )?(?:function|const) (\w+)", body, re.M))
        body = re.sub(r"^export (?=async |function |const )", "", body, flags=re.M)
        if ANY_IMPORT_OR_EXPORT.search(body):
            raise ValueError(f"{name}.js has an import or export in a form that is not known")
        parts.append(TYPES.sub("", body).strip())
    return '"use strict";\n(() => {\n' + "\n\n".join(parts) + "\n})();\n"


def asset(name: str) -> str:
    """Returns a file that comes with the package."""
    return (resources.files("interp.pages") / "assets" / name).read_text(encoding="utf-8")
