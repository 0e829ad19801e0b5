"""The rules of a robots.txt that concern one robot."""

import re

import protego

# As protego reads it: also without the hyphen or the colon.
_AGENT = re.compile(r"\s*user[-\s]*agent(?:\s*:|\s)([^#]*)", re.IGNORECASE)
_NOBODY = "-"


def rules_for(robot: str, text: str) -> protego.Protego:
    """Parses a robots.txt, in time that grows with its length only.

    protego keeps each rule once for each robot of its group, so a small file that names many
    robots would take minutes and gigabytes. Therefore all other robots become one.

    Args:
      robot: the robot's name, in lower case; ask the result about no other one.
      text: the content of the file.
    """
    lines = text.splitlines()
    named = [_named(line) for line in lines]
    # The group of the longest name that the robot's begins with is the one that counts.
    ours = max((each for each in named if each and robot.startswith(each)), key=len, default="*")
    return protego.Protego.parse(
        "\n".join(
            line if agent is None else f"User-agent: {ours if agent == ours else _NOBODY}"
            for line, agent in zip(lines, named, strict=True)
        )
    )


def _named(line: str) -> str | None:
    """The robot that a line names, in lower case; None for any other line."""
    found = _AGENT.match(line)
    if found is None:
        return None
    agent = found[1].strip().lower()
    return agent if agent == "*" else agent.replace("*", "")
