"""Counts the matrix operations of a compiled program, loops multiplied by their trip counts.

XLA's own `cost_analysis` on CPU counts a loop's body once, whatever the number of turns.
"""

import math
import re

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_RESULT = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (?:\()?\w+\[([\d,]*)\]")
_DOT = re.compile(r" dot\(([^)]*)\)")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_CALLED = re.compile(
    r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


def dot_flops(hlo: str) -> int:
    """Floating-point operations of all matrix products that a run of the program does.

    Args:
      hlo: the optimised program's text, `compiled.as_text()`.

    Returns:
      Two operations for each multiply-add. Branches of a conditional are all counted.

    Raises:
      ValueError: a loop with matrix products has no known trip count.
    """
    computations, entry = _computations(hlo)
    totals: dict[str, int] = {}

    def total(name: str) -> int:
        if name not in totals:
            totals[name] = sum(
                _line_flops(line, shapes[name], total) for line in computations[name]
            )
        return totals[name]

    shapes = {
        name: {m[1]: _dims(m[2]) for line in lines if (m := _RESULT.match(line))}
        for name, lines in computations.items()
    }
    return total(entry)


def _computations(hlo: str) -> tuple[dict[str, list[str]], str]:
    found: dict[str, list[str]] = {}
    entry = current = ""
    for line in hlo.splitlines():
        if header := _COMPUTATION.match(line):
            current = header[1]
            found[current] = []
            entry = current if line.startswith("ENTRY") else entry
        elif current:
            found[current].append(line)
    return found, entry


def _line_flops(line: str, shapes: dict[str, list[int]], total) -> int:
    flops = 0
    if (dot := _DOT.search(line)) and (result := _RESULT.match(line)):
        first = dot[1].split(",")[0] if "[" not in dot[1] else None
        operand = re.search(r"%([\w.\-]+)", dot[1])
        lhs = shapes.get(operand[1]) if operand else None
        if lhs is None:
            lhs = _dims(_SHAPE.search(dot[1])[1]) if first is None else shapes[first.strip()]
        contracted = [lhs[int(i)] for i in _CONTRACTED.search(line)[1].split(",") if i]
        flops += 2 * math.prod(_dims(result[2])) * math.prod(contracted)
    called = _CALLED.findall(line)
    if branches := _BRANCHES.search(line):
        called += [name.strip().lstrip("%") for name in branches[1].split(",")]
    inner = sum(total(name) for name in called)
    if inner and " while(" in line:
        trips = _TRIPS.search(line)
        if trips is None:
            raise ValueError(f"a loop with matrix products has no known trip count: {line[:200]}")
        inner *= int(trips[1])
    return flops + inner


def _dims(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]
