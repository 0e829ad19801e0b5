"""Counts before training how many records of files are used, and why others are not."""

import dataclasses
import json

import seqio

from data_pipelines.inputs import Input
from data_pipelines.own_records import OwnRecordsSource, is_rated_bad
from data_pipelines.packing import PackingReport
from data_pipelines.sources import JsonLinesSource
from data_pipelines.task_input import TaskInput
from gophercite import records

# With more records than this, over-long ones are not counted in advance, because that needs
# tokenisation.
_MOST_TOKENISED = 20_000
_SHOWN_ERRORS = 5


def survey(name: str, input: TaskInput) -> list[str]:
    """Counts what happens to an input's records.

    Args:
      name: the purpose of the input, for the message.
      input: the input whose records are counted; up to 20,000 records are tokenised for this.

    Returns:
      Lines of text: the counts, a warning about held-out records if there is one, and the first bad
      lines of the files. Empty for an input that reads no files.

    Raises:
      ValueError, OSError: a file can't be read, or contains nothing usable.
    """
    provider = seqio.get_mixture_or_task(input.mixture_or_task_name)
    tasks = provider.tasks if isinstance(provider, seqio.Mixture) else [provider]
    sources = [task.source for task in tasks if isinstance(task.source, JsonLinesSource)]
    if not sources or len(sources) < len(tasks):
        return []
    reports = [source.report(input.split) for source in sources]
    total = sum(source.count(input.split) for source in sources)
    skipped = sum(report.skipped for report in reports)
    dropped = {"bad line" if skipped == 1 else "bad lines": skipped}
    used = total
    if isinstance(input, Input) and total <= _MOST_TOKENISED:
        bad = sum(_rated_bad(source, input.split) for source in sources)
        packed = PackingReport()
        for _ in dataclasses.replace(input, shuffle=False, report=packed).one_pass():
            pass
        used = packed.packed
        dropped["rated as not plausible or not supported"] = bad
        longer = f"longer than LENGTH = {input.length} (the longest has {packed.longest_dropped})"
        dropped[longer] = packed.dropped
        dropped["not rated, or without a prompt"] = total - bad - packed.packed - packed.dropped
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
    records_used = "1 record is used" if used == 1 else f"{used} records are used"
    lines = [f"{name}: {records_used}; dropped: {reasons or 'none'}"]
    for source in sources:
        warning = source.warning(input.split) if isinstance(source, OwnRecordsSource) else None
        lines += [f"  {warning}"] if warning is not None else []
    errors: list[records.RecordError] = [error for report in reports for error in report.errors]
    return lines + [f"  {error}" for error in errors[:_SHOWN_ERRORS]]


def _rated_bad(source: JsonLinesSource, split: str) -> int:
    texts = (source.record(split, index)[1] for index in range(source.count(split)))
    return sum(is_rated_bad(json.loads(text)) for text in texts)
