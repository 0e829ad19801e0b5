"""The JSON-lines records: documents, questions, rated answers, comparisons and completions.

Each line is one record (`docs/records.md` lists the fields). Files may be untrusted or years old,
so a bad line is never fatal: it is named by file, line and field, counted and left out; with
`strict` the first bad line stops the reading. Texts are normalised like documents
(`gophercite.documents.normalise_text`), and offsets are adjusted.
"""

from gophercite.documents import Document
from gophercite.records.files import (
    KEPT_ERRORS,
    Report,
    none_usable,
    read,
    read_parsed,
    read_some,
    write,
    write_json,
)
from gophercite.records.types import (
    Comparison,
    Completion,
    Extract,
    FoundDocument,
    Hit,
    LongAnswer,
    Question,
    RatedAnswer,
    Record,
    Response,
    Span,
)
from gophercite.records.validation import from_json, to_json
from gophercite.storage.json_fields import RecordError

__all__ = [
    "KEPT_ERRORS",
    "Comparison",
    "Completion",
    "Document",
    "Extract",
    "FoundDocument",
    "Hit",
    "LongAnswer",
    "Question",
    "RatedAnswer",
    "Record",
    "RecordError",
    "Report",
    "Response",
    "Span",
    "from_json",
    "none_usable",
    "read",
    "read_parsed",
    "read_some",
    "to_json",
    "write",
    "write_json",
]
