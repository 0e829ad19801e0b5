"""The user's own files as documents: folders of text, Markdown, HTML, PDF and JSON lines."""

import collections
import dataclasses
import datetime
import os
import pathlib
import stat
from collections.abc import Iterable, Iterator

from gophercite import records
from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.extraction.text import TextError, is_pdf
from gophercite.text.counting import counted

_TYPES = {
    ".txt": "text/plain",
    ".text": "text/plain",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".pdf": "application/pdf",
}
_RECORDS = (".jsonl", ".jsonl.gz")
READABLE_NAMES = (*_TYPES, *_RECORDS)


# Documents of JSON-lines files: by id, the file of the first one and the hash of its text, which
# takes less memory than the text.
_Known = dict[str, tuple[pathlib.Path, int]]


class _EmptyError(TextError):
    """A file that can be read, but has no text."""


@dataclasses.dataclass(frozen=True)
class FileProblem:
    """A file that could not be used, and why.

    Attributes:
      path: for display: bytes that are not UTF-8 are shown as U+FFFD. If the problem is in one line
        of a file, the line number follows.
      reason: what is wrong with it.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        """As one line."""
        return f"{self.path}: {self.reason}"


@dataclasses.dataclass
class FilesReport:
    """What became of the files that were given.

    Attributes:
      read: number of documents.
      skipped: number of files, or lines of JSON-lines files, that could not be read.
      problems: which ones, and why; at most `records.KEPT_ERRORS` per JSON-lines file.
      partial: files of which only the beginning was read, or whose damaged rest was left out.
      ignored: number of files in folders whose extension is not one that is read here.
      links: number of symbolic links in folders; they are not followed.
      unread: URLs of files and folders whose documents are not known, because they could not be
        read. Files without a text are not among them, except for PDFs, which may be scanned, nor
        are files in which only single lines are bad.
    """

    read: int = 0
    skipped: int = 0
    problems: list[FileProblem] = dataclasses.field(default_factory=list)
    partial: list[str] = dataclasses.field(default_factory=list)
    ignored: int = 0
    links: int = 0
    unread: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        """One line for the counts, then one for each problem."""
        counts = f"{counted(self.read, 'document')} read, {self.skipped} skipped"
        if self.ignored:
            counts += f", {counted(self.ignored, 'file')} of other kinds ignored"
        if self.links:
            counts += f", {counted(self.links, 'symbolic link')} not followed"
        partial = (f"{path}: only a part of it could be read" for path in self.partial)
        return "\n".join([counts, *map(str, self.problems), *partial])


def read_files(
    paths: Iterable[str | os.PathLike[str]],
    extractor: Extractor,
    report: FilesReport | None = None,
) -> Iterator[Document]:
    """Yields the documents of files and folders.

    A file becomes one document. Its id and url are the file's URL, its title is its own or else its
    name, and its `retrieved_at` is the modification time. A JSON-lines file gives one document per
    line; of documents of several files with one id but different texts, only the first is used.
    Folders are read recursively, in the order of names. Hidden files and symbolic links in them are
    skipped, but a link that is passed itself is followed. Whatever can't be read is named and
    counted in the report.

    Args:
      paths: files and folders.
      extractor: converts pages to text.
      report: receives the counts and problems.

    Raises:
      FileNotFoundError: when one of the paths does not exist; raised before anything is read.
    """
    return (document for _, document in read_by_file(paths, extractor, report))


def read_by_file(
    paths: Iterable[str | os.PathLike[str]],
    extractor: Extractor,
    report: FilesReport | None = None,
) -> Iterator[tuple[str, Document]]:
    """Yields what `read_files` does, each document with the URL of its file."""
    report = FilesReport() if report is None else report
    roots = [pathlib.Path(path) for path in paths]
    for root in roots:
        _require(root)
    known: _Known = {}
    for root in roots:
        for path in _files_of(root, report) if root.is_dir() else [root]:
            try:
                _require_content(path)
                if _is_records(path):
                    for document in _documents_of_lines(path, report, known):
                        yield _address(path), document
                else:
                    document = _document_of(path, extractor, report)
                    yield document.id, document
                    report.read += 1
            except (OSError, TextError, records.RecordError) as error:
                report.skipped += 1
                if not isinstance(error, _EmptyError):
                    report.unread.append(_address(path))
                report.problems.append(_problem_of(path, error))


def was_read(address: str, paths: Iterable[str | os.PathLike[str]], report: FilesReport) -> bool:
    """Whether everything that a file has now was read.

    So it is for a file that is gone, or is now hidden, if it would have been read.

    Args:
      address: the file's URL.
      paths: the files and folders that were read.
      report: the report on them.
    """
    return is_below(address, paths) and not _is_below(address, report.unread)


def is_below(address: str, paths: Iterable[str | os.PathLike[str]]) -> bool:
    """Whether a URL is that of one of these files, or of a file in one of these folders."""
    return _is_below(address, [_address(pathlib.Path(path)) for path in paths])


def _is_below(address: str, others: Iterable[str]) -> bool:
    roots = (other.rstrip("/") for other in others)
    return any(address == root or address.startswith(f"{root}/") for root in roots)


def _shown(path: str | os.PathLike[str]) -> str:
    return os.fsencode(path).decode("utf-8", errors="replace")


def _require(path: pathlib.Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        what = "there is no such file or folder"
        if path.is_symlink():
            what = f"is a link to {_shown(path.readlink())!r}, which does not exist"
        raise FileNotFoundError(f"{_shown(path)}: {what}") from None
    except OSError:
        return  # reported later, with the others that can't be read


def _files_of(folder: pathlib.Path, report: FilesReport) -> Iterator[pathlib.Path]:
    def note(error: OSError) -> None:
        report.skipped += 1
        report.unread.append(_address(pathlib.Path(error.filename)))
        report.problems.append(_problem_of(error.filename, error))

    for place, folders, names in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        report.links += sum(pathlib.Path(place, name).is_symlink() for name in folders)
        for name in sorted(names):
            path = pathlib.Path(place, name)
            if name.startswith("."):
                continue
            if path.is_symlink():
                report.links += 1
            elif path.suffix.lower() in _TYPES or _is_records(path):
                yield path
            else:
                report.ignored += 1


def _require_content(path: pathlib.Path) -> None:
    """Refuses what is empty, and what might never end, such as a pipe."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise TextError("is not an ordinary file")
    if not status.st_size:
        raise _EmptyError("is empty")


def _is_records(path: pathlib.Path) -> bool:
    return path.name.lower().endswith(_RECORDS)


def _address(path: pathlib.Path) -> str:
    return pathlib.Path(os.path.abspath(path)).as_uri()


def _document_of(path: pathlib.Path, extractor: Extractor, report: FilesReport) -> Document:
    content_type = _TYPES.get(path.suffix.lower())
    if content_type is None:
        raise TextError(f"is not of a kind that can be read ({' '.join(READABLE_NAMES)})")
    status = path.stat()
    largest = extractor.budget.content_bytes
    if status.st_size > largest:
        raise TextError(f"has {status.st_size} bytes, but at most {largest} are allowed")
    content = path.read_bytes()
    page = extractor.page_text(content, content_type)
    if not page.text.strip():
        if is_pdf(content):
            raise TextError("has no text (scanned pages?)")
        raise _EmptyError("has no text")
    if not page.is_whole:
        report.partial.append(_shown(path))
    address = _address(path)
    return Document(
        address,
        page.title or _shown(path.stem),
        page.text,
        address,
        _modified(status),
        page_starts=page.page_starts,
    )


def _modified(status: os.stat_result) -> str | None:
    """When a file was modified, in ISO 8601; None if that is in no year from 1 to 9999."""
    try:
        modified = datetime.datetime.fromtimestamp(int(status.st_mtime), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return modified.isoformat().replace("+00:00", "Z")  # strftime doesn't pad the year everywhere


def _documents_of_lines(
    path: pathlib.Path, report: FilesReport, known: _Known
) -> Iterator[Document]:
    """Yields the documents of a JSON-lines file whose ids are not those of other texts.

    Args:
      path: the file.
      report: receives the counts and problems.
      known: the documents of the files before it; those of this file are added.
    """

    def parse(value: object, unknown: collections.Counter[str]) -> Document:
        document = records.from_json(value, Document, unknown)
        text = hash(document.text)
        first, first_text = known.setdefault(document.id, (path, text))
        if first != path and first_text != text:
            problem = (
                f"{document.id!r} is already the id of a document of {_shown(first)} with another "
                "text"
            )
            raise records.RecordError(problem, "id")
        return document

    lines = records.Report()
    try:
        yield from records.read_parsed(path, parse, lambda document: document.id, report=lines)
    finally:
        report.read += lines.read
        report.skipped += lines.skipped
        report.problems.extend(_problem_of(path, error) for error in lines.errors)


def _problem_of(
    path: str | os.PathLike[str], error: OSError | TextError | records.RecordError
) -> FileProblem:
    if isinstance(error, TextError):
        return FileProblem(_shown(path), str(error))
    if isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
        return FileProblem(_shown(path), f"can't be read: {reason}")
    line = "" if error.line is None else f":{error.line}"
    field = f"field {error.field!r}: " if error.field else ""
    return FileProblem(f"{_shown(path)}{line}", f"{field}{error.problem}")
