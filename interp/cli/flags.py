"""Messages of the library name its arguments; on the command line these are flags."""

from __future__ import annotations

import re
from collections.abc import Collection

OTHER_NAMES = {"folder": "out", "foils": "foil"}  # argument of the library: option here
REMEDIES = "another|choose|give|lower|raise|set"  # what stands before an argument to change


def flag_of(name: str) -> str:
    """Returns the flag of an option's name: `--max-mb` of "max_mb"."""
    return f"--{name.replace('_', '-')}"


def in_flags(message: str, options: Collection[str]) -> str:
    """Returns a message with the names of arguments, where they are meant, as flags.

    An argument is meant before an equals sign ("by = 'x' is not one of …"), behind a verb that says
    what to do ("raise max_mb"), behind another flag ("give target and foil"), and wherever its name
    has an underscore. Elsewhere "text" and "seed" are words like others.

    Example:
        >>> in_flags("the text is short; give another text or raise max_mb", ["text", "max_mb"])
        'the text is short; give another --text or raise --max-mb'
        >>> in_flags("by = 'x' is not one of 'block'; give fresh=True", ["by", "fresh"])
        "--by = 'x' is not one of 'block'; give --fresh"
    """
    flags = {name: flag_of(name) for name in options}
    flags |= {name: flag_of(own) for name, own in OTHER_NAMES.items() if own in options}
    if not flags:
        return message
    names = "|".join(sorted(map(re.escape, flags), key=len, reverse=True))
    free = r"(?<![\w.\-'\"])"  # not a part of a longer name, not quoted
    over = r"(?=[,;:]|$| (?:and|instead|or)\b)"  # the end of what is named

    def flagged(found: re.Match[str]) -> str:
        return found["before"] + flags[found["name"]]

    for pattern in (
        rf"{free}(?P<before>)(?P<name>{names})(?==| = )",
        rf"\b(?P<before>(?:{REMEDIES}) )(?:an? )?(?P<name>{names}){over}",
        rf"(?P<before>--[\w-]+(?:,| and| or) )(?P<name>{names})\b",
        rf"{free}(?P<before>)(?P<name>(?=\w*_)(?:{names}))(?![\w.'\"])",
    ):
        message = re.sub(pattern, flagged, message)
    return re.sub(r"(--[\w-]+)=True\b", r"\1", message)
