"""Breaks formulas one at a time, and asks the tests whether they notice.

    python benchmarks/mutants.py [SUBJECT ...] [--each 20] [--seed 0] [--results mutants.jsonl]

A mutant is a source file with one operator, comparison, condition, constant, argument order, term
or statement changed. For each SUBJECT (a file of `SUBJECTS`, all by default) a seeded sample of its
mutants is made, and for each of them its tests run until the first fails. Prints a table and the
mutants that live; --results keeps one JSON line a mutant, and mutants found there aren't run again.

Importing JAX takes longer than most tests: this process imports it once and forks for every mutant.
A child reads the changed source in place of the file, whose bytes on disk stay as they are.
"""

import argparse
import ast
import collections
import dataclasses
import importlib
import importlib.machinery
import itertools
import json
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
TESTS = "tests/"
SECOND = "test_objective_and_gradients_are_those_of_the_second_formulation"
OBJECTIVE = f"learning/test_a2c_objective.py::{SECOND}"
ONE_CASE = f"{OBJECTIVE}[constrained, frozen, in pieces]"
OBJECTIVES = (ONE_CASE, f"{OBJECTIVE}[free]", "learning/test_rollouts.py")
POLICIES = "evaluation/test_policies.py"
MASKS = "quoting/test_constraint.py::test_the_mask_is_exactly_what_can_still_be_finished"
CONSTRAINT = (
    MASKS,
    "quoting/test_all_answers.py::test_white_space_alone_is_no_quote_whatever_bracket_follows",
    "quoting/test_all_answers.py::test_what_can_be_sampled_is_what_is_legal",
    "quoting/test_constraint.py::test_every_sample_is_legal_at_every_budget",
)
COMMANDS = (
    "commands/test_commands.py",
    "commands/test_all_commands.py::test_commands_that_can_be_written_are_those_that_are_accepted",
    "commands/test_all_commands.py::test_a_farther_end_in_fewer_tokens_counts",
    "commands/test_all_commands.py::test_no_word_is_begun_that_would_make_a_quote_too_long",
    "commands/test_all_commands.py::test_quotes_by_their_start_and_end_are_accepted_and_ended",
    "commands/test_all_commands.py::test_answers_that_can_be_written_cite_what_is_there",
)
FAULTS = (
    "decoding/test_fault_tracking.py::test_the_automaton_parses_what_evidence_parses",
    "decoding/test_fault_tracking.py::test_nearly_right_responses[hostile]",
    "decoding/test_fault_tracking.py::test_quotes_that_leave_words_out[hostile-4-2]",
    "decoding/test_fault_tracking.py::test_prompts_that_show_little",
)

# What is broken, and which tests have to notice: the cheapest first.
SUBJECTS: dict[str, tuple[str, ...]] = {
    "learning/a2c.py": OBJECTIVES,
    "learning/policy_terms.py": OBJECTIVES[:2],
    "learning/rollouts.py": ("learning/test_rollouts.py", ONE_CASE),
    "learning/reward.py": (
        "learning/test_recomputed_losses.py",
        "learning/test_second_formulations.py",
        "learning/test_reward.py",
    ),
    "learning/preference_metrics.py": (
        "learning/test_second_formulations.py",
        "learning/test_reward.py",
    ),
    "learning/cross_entropy.py": ("learning/test_cross_entropy.py",),
    "learning/supervised.py": (
        "learning/test_recomputed_losses.py",
        "learning/test_second_formulations.py",
        "learning/test_supervised.py",
    ),
    "learning/gradient_learner.py": (
        "learning/test_recomputed_updates.py",
        "learning/test_recomputed_losses.py",
        "learning/test_second_formulations.py",
        "learning/test_supervised.py",
    ),
    "learning/schedules.py": ("learning/test_schedules.py",),
    "learning/clipping.py": ("learning/test_clipping.py",),
    "learning/ema.py": ("learning/test_ema.py", "learning/test_recomputed_updates.py"),
    "learning/rounding.py": ("learning/test_rounding.py",),
    "learning/ppo.py": ("learning/test_ppo.py",),
    "learning/advantages.py": ("learning/test_advantages.py",),
    "learning/token_log_probs.py": ("learning/test_ppo.py",),
    "learning/adam.py": ("learning/test_optimizers.py", "learning/test_recomputed_updates.py"),
    "learning/adafactor.py": ("learning/test_optimizers.py", "learning/test_recomputed_updates.py"),
    "learning/optimizers.py": (
        "learning/test_optimizers.py",
        "learning/test_recomputed_updates.py",
    ),
    "models/value_head.py": ("models/test_value_head.py", *OBJECTIVES),
    "models/reward_model.py": ("learning/test_second_formulations.py", "learning/test_reward.py"),
    "quoting/quote_state.py": CONSTRAINT,
    "quoting/quote_graph.py": CONSTRAINT,
    "quoting/claims.py": ("quoting/test_claims.py", MASKS),
    "quoting/completions.py": CONSTRAINT,
    "quoting/token_edges.py": CONSTRAINT,
    "decoding/response_automaton.py": FAULTS,
    "decoding/fault_tracking.py": FAULTS,
    "quoting/run_boundaries.py": ("quoting/test_run_boundaries.py", MASKS),
    "quoting/run_automaton.py": ("quoting/test_run_automaton.py", MASKS),
    "quoting/omissions.py": ("quoting/test_omissions.py",),
    "decoding/claim_in_quote.py": ("quoting/test_claim_in_quote.py",),
    "commands/constraint.py": COMMANDS,
    "commands/endings.py": COMMANDS,
    "commands/free_texts.py": COMMANDS,
    "commands/long_quotes.py": COMMANDS,
    "commands/page_runs.py": COMMANDS,
    "commands/skeletons.py": COMMANDS,
    "quoting/suffix_automaton.py": ("quoting/test_suffix_automaton.py", MASKS),
    "decoding/abstention.py": ("decoding/test_abstention.py", "evaluation/test_abstention.py"),
    "evaluation/abstention.py": ("evaluation/test_abstention.py",),
    "evaluation/best_of_n.py": ("evaluation/test_best_of_n.py",),
    "evaluation/metrics.py": ("evaluation/test_metrics.py",),
    "evaluation/evidence_overlap.py": ("evaluation/test_metrics.py",),
    "evaluation/intervals.py": ("evaluation/test_metrics.py", "reports/test_report.py"),
    "evaluation/differences.py": (
        f"{POLICIES}::test_gains_have_intervals_over_questions_and_over_chains",
        f"{POLICIES}::test_one_difference_says_nothing_of_others",
    ),
    "evaluation/roc.py": (
        "evaluation/test_parity.py::test_the_roc_curve_is_that_of_scikit_learn",
        "evaluation/test_parity.py::test_what_has_no_curve_is_refused",
    ),
    "answering/declining.py": ("answering/test_declining.py",),
}

# Errors that change more than one operator, or that tests once let live; made in every run.
BY_HAND = [
    ("learning/rollouts.py", "verdicts.reward - rewards", "verdicts.reward + rewards"),
    ("learning/rollouts.py", "(faults != 0)", "jax.lax.population_count(faults)"),
    ("learning/rollouts.py", "lengths + ~ended", "lengths"),
    ("learning/policy_terms.py", "p * (log_p - log_q)", "jnp.exp(log_q) * (log_q - log_p)"),
    ("learning/policy_terms.py", "jnp.where(mask, logits, MASKED)", "logits"),
    ("learning/a2c.py", "value_loss = jnp.sum(", "value_loss = 0.3 * jnp.sum("),
    ("learning/a2c.py", "value_loss = jnp.sum(", "value_loss = 0.5 * jnp.sum("),
    ("learning/a2c.py", "jax.lax.stop_gradient(rewards - values)", "rewards - values"),
    ("learning/a2c.py", "jax.lax.stop_gradient(rewards - values)", "rewards + 0 * values"),
    ("learning/reward.py", "(1 - self.auxiliary_weight) * preference", "preference"),
    ("learning/reward.py", '/ weights["decided"]', '/ weights["pairs"]'),
    ("learning/adafactor.py", "min(shape[-2:])", "max(shape[-2:])"),
    ("learning/gradient_learner.py", "self.schedule(state.step)", "self.schedule(state.step + 1)"),
    ("learning/gradient_learner.py", "gradients, norm = self", "_, norm = self"),
    (
        "learning/gradient_learner.py",
        "ema.update(state.ema, trained,",
        "ema.update(state.ema, self.trained(state.params),",
    ),
    ("learning/gradient_learner.py", "jax.random.fold_in(state.key, state.step)", "state.key"),
]
# Each with the other, or where it has none, with a neighbour.
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Lt: ast.LtE,
    ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip
NAMES = {
    "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "any": "all",
    "all": "any", "argmax": "argmin", "floor": "ceil", "ceil": "floor", "sum": "mean",
    "log_softmax": "softmax", "cumsum": "cumprod", "zeros": "ones", "ones": "zeros",
    "square": "abs", "sqrt": "cbrt",
}  # fmt: skip
# Calls of which the first argument alone is left.
NO_CALL = {"stop_gradient", "clip", "where"}
# Functions that don't care about their arguments' order, or take only one.
SYMMETRIC = {"maximum", "minimum", "max", "min", "gcd", "map", "isclose"}
# What decides no value: errors' texts, names of phases and axes, hints to the compiler.
SILENT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
SILENT_CALLS = {"phase", "constrain", "partial", "TypeVar", "dataclass", "field"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    subject: str
    line: int
    rule: str
    before: str
    after: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """What tells it from all others, whatever else is in the file."""
        return f"{self.subject}:{self.line}: {self.rule}: {self.before} → {self.after}"


def mutants(subject: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    begins = [0, *itertools.accumulate(len(line.encode()) for line in source.splitlines(True))]
    made: list[Mutant] = []

    def add(node: Any, rule: str, new: str) -> None:
        before, after = ast.unparse(node), new
        if after not in (before, f"({before})"):
            place = begins[node.lineno - 1] + node.col_offset
            end = begins[node.end_lineno - 1] + node.end_col_offset
            made.append(Mutant(subject, node.lineno, rule, before, after, place, end))

    for node in _formulas(ast.parse(source)):
        for rule, new in _changes(node):
            text = ast.unparse(new)
            add(node, rule, f"({text})" if isinstance(node, ast.expr) else text)
    return sorted(made, key=lambda mutant: (mutant.start, mutant.end, mutant.after))


def by_hand(subject: str, source: str) -> list[Mutant]:
    """The mutants of a file that are written down."""
    made = []
    for file, before, after in BY_HAND:
        if file == subject:
            start = len(source[: source.index(before)].encode())
            line = source[: source.index(before)].count("\n") + 1
            end = start + len(before.encode())
            made.append(Mutant(subject, line, "by hand", before, after, start, end))
    return made


def _formulas(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that decide what is computed: no annotations, messages or decorators."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, SILENT):
                continue
            called = node.func if isinstance(node, ast.Call) else None
            if getattr(called, "attr", getattr(called, "id", None)) not in SILENT_CALLS:
                yield node
                yield from _formulas(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _changes(node: Any) -> Iterator[tuple[str, Any]]:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            if _is_text(left) or _is_text(right) or isinstance(left, ast.List | ast.JoinedStr):
                return
            if type(op) in OPERATORS:
                yield "operator", ast.BinOp(left, OPERATORS[type(op)](), right)
            if isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.BitAnd | ast.BitOr):
                yield "term", left
            if isinstance(op, ast.Sub | ast.Div | ast.Pow):
                yield "swap", ast.BinOp(right, op, left)
            if isinstance(op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr):
                yield "term", right
        case ast.BoolOp(op=op, values=values):
            yield "operator", ast.BoolOp(OPERATORS[type(op)](), values)
            for place in range(len(values)):
                rest = values[:place] + values[place + 1 :]
                yield "term", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.Compare(left=left, ops=ops, comparators=right):
            for place, op in enumerate(ops):
                new = [*ops[:place], OPERATORS[type(op)](), *ops[place + 1 :]]
                yield "comparison", ast.Compare(left, new, right)
            if len(ops) == 1 and isinstance(ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                yield "comparison", ast.Compare(right[0], ops, [left])
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield "sign", operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "condition", ast.IfExp(test, orelse, body)
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(2 * value if value else 1.0)
        case ast.Call(func=func, args=args, keywords=keywords):
            name = getattr(func, "attr", getattr(func, "id", ""))
            if name in NAMES:
                other: Any = ast.Name(NAMES[name])
                if isinstance(func, ast.Attribute):
                    other = ast.Attribute(func.value, NAMES[name])
                yield "function", ast.Call(other, args, keywords)
            if name in NO_CALL and args:
                yield "call", args[0] if name != "where" else args[-1]
            if name == "where" and len(args) == 3:
                yield "arguments", ast.Call(func, [args[0], args[2], args[1]], keywords)
            elif len(args) > 1 and type(args[0]) is type(args[1]) and name not in SYMMETRIC:
                yield "arguments", ast.Call(func, [args[1], args[0], *args[2:]], keywords)
        case ast.If(test=test) if not node.orelse:
            header = ast.If(ast.UnaryOp(ast.Not(), test), node.body, [])
            if node.lineno == node.end_lineno:
                yield "condition", header
        case ast.AugAssign():
            yield "statement", ast.Pass()


def mutate(source: str, mutant: Mutant) -> bytes:
    """The source with the change in it."""
    text = source.encode()
    return text[: mutant.start] + mutant.after.encode() + text[mutant.end :]


def run(subject: str, changed: bytes, tests: tuple[str, ...], limit: float) -> tuple[str, float]:
    """Runs tests on a changed source in a child: "killed", "alive" or "timed out", and seconds."""
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _become_quiet()
        _read_instead(ROOT / "gophercite" / subject, changed)
        import hypothesis
        import pytest

        # A busy machine kills no mutant, and what was found for one is not tried on the next.
        hypothesis.settings.register_profile("mutants", deadline=None, database=None)
        hypothesis.settings.load_profile("mutants")
        code = pytest.main(["-x", "-q", "-p", "no:xdist", *(TESTS + test for test in tests)])
        os._exit(int(code))
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - begun
        if done:
            code = os.waitstatus_to_exitcode(status)
            return {0: "alive", 1: "killed", 2: "killed"}.get(code, f"exit {code}"), seconds
        if seconds > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "timed out", seconds
        time.sleep(0.05)


def _become_quiet() -> None:
    empty = os.open(os.devnull, os.O_WRONLY)
    os.dup2(empty, 1)
    os.dup2(empty, 2)


def _read_instead(file: pathlib.Path, changed: bytes) -> None:
    """Lets this process import other bytes than a file's."""
    loader: Any = importlib.machinery.SourceFileLoader
    read: Callable[[Any, str], bytes] = loader.get_data

    def get_data(self: Any, path: str) -> bytes:
        asked = pathlib.Path(path)
        if asked == file:
            return changed
        if asked.parent == file.parent / "__pycache__" and asked.name.startswith(f"{file.stem}."):
            raise OSError("bytecode of the file as it is")
        return read(self, path)

    loader.get_data = get_data
    sys.dont_write_bytecode = True
    import gophercite.native as native

    # Machine code is kept by what files hold: the file's functions would be the unchanged ones.
    compiled = {name: getattr(native, name) for name in ("native", "native_inline")}
    for name, compile in compiled.items():

        def plain(function: Any, compile: Any = compile) -> Any:
            home = pathlib.Path(function.__code__.co_filename)
            return function if home == file else compile(function)

        setattr(native, name, plain)


def warm_up() -> None:
    """Imports what tests import, and nothing of ours; starts no device."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "launch")]
    import tests.conftest  # noqa: F401  # its settings come before the first import of JAX

    for name in ("pytest", "hypothesis", "flax.linen", "optax", "numba", "scipy.stats", "beartype"):
        importlib.import_module(name)
    ours = [name for name in sys.modules if name.split(".")[0] == "gophercite"]
    assert not ours, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", help="FILE or FILE:FIRST-LAST; all files by default")
    parser.add_argument("--each", type=int, default=20, help="mutants a file; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, help="seconds a mutant; the file as it is isn't tested first, then"
    )
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("mutants.jsonl"))
    parser.add_argument("--again", action="store_true", help="only those that lived, once more")
    options = parser.parse_args()
    asked = [subject.partition(":") for subject in options.subjects or SUBJECTS]
    unknown = {file for file, _, _ in asked} - set(SUBJECTS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: must be among {', '.join(SUBJECTS)}")
    results = options.results.resolve()
    warm_up()
    known = {}
    if results.exists():
        known = {row["mutant"]: row for row in map(json.loads, results.read_text().splitlines())}
    for subject, _, lines in asked:
        source = (ROOT / "gophercite" / subject).read_text()
        first, last = map(int, (lines or "0-99999").split("-"))
        every = [m for m in mutants(subject, source) if first <= m.line <= last]
        random.Random(f"{options.seed} {subject}").shuffle(every)
        sample = by_hand(subject, source) + every[: options.each or None]
        if options.again:
            every += by_hand(subject, source)
            sample = [m for m in every if known.get(m.name, {}).get("fate") == "alive"]
            known = {
                name: row for name, row in known.items() if name not in {m.name for m in sample}
            }
        left = [mutant for mutant in sample if mutant.name not in known]
        if not left:
            continue
        unchanged, seconds = "alive", 0.0
        if options.limit is None:
            unchanged, seconds = run(subject, source.encode(), SUBJECTS[subject], 3600)
        if unchanged != "alive":
            print(f"{subject}: its tests fail without any change ({unchanged}); left out")
            continue
        print(f"{subject}: {len(every)} mutants, {len(left)} to run; tests take {seconds:.0f} s")
        for mutant in left:
            limit = options.limit or 30 + 4 * seconds
            fate, taken = run(subject, mutate(source, mutant), SUBJECTS[subject], limit)
            row = {"mutant": mutant.name, "fate": fate, "seconds": round(taken, 1)}
            known[mutant.name] = row
            with results.open("a") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{fate:10} {taken:6.1f} s  {mutant.name}", flush=True)
    _show(known)


def _show(known: dict[str, Any]) -> None:
    fates: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, row in known.items():
        fates[name.partition(":")[0]][row["fate"]] += 1
    fates["all"] = sum(fates.values(), collections.Counter())
    print("\n| File | Made | Killed | Timed out | Alive |\n|---|---|---|---|---|")
    for subject, count in fates.items():
        dead = count.total() - count["alive"] - count["timed out"]
        print(f"| {subject} | {count.total()} | {dead} | {count['timed out']} | {count['alive']} |")
    for name, row in known.items():
        if row["fate"] == "alive":
            print(f"alive: {name}")


if __name__ == "__main__":
    main()
