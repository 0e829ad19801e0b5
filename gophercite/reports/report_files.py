"""Reports as files: Markdown with separate figures, and one HTML page that contains everything."""

import dataclasses
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from etils import epath

from gophercite.evaluation.answers import JudgedSample
from gophercite.reports import page
from gophercite.reports.report import samples_table
from gophercite.reports.tables import Table, escape_markdown
from gophercite.storage import write_file

_SHOWN = 100  # answers in the Markdown file; the HTML page has all of them


@dataclasses.dataclass(frozen=True)
class Image:
    """A figure: a PNG image and its caption."""

    png: bytes
    caption: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a report; everything but the heading may be empty.

    Attributes:
      heading: heading of the section; empty for the first one.
      text: paragraphs.
      tables: tables, in order.
      images: by name, which becomes part of the file names next to the Markdown.
      answers: answers to browse.
    """

    heading: str = ""
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    images: Mapping[str, Image] = dataclasses.field(default_factory=dict)
    answers: Sequence[JudgedSample] = ()


def write_report(prefix: epath.PathLike, title: str, sections: Sequence[Section]) -> list[str]:
    """Writes PREFIX.md, PREFIX.html and PREFIX_NAME.png for each figure.

    Args:
      prefix: a path, or a URL of a bucket.
      title: the report's title.
      sections: its sections.

    Returns:
      The names of the files.
    """
    root = epath.Path(prefix)
    images = {name: image for section in sections for name, image in section.images.items()}
    files: dict[str, str | bytes] = {
        ".md": _markdown(root.name, title, sections),
        ".html": page.page(title, map(_html, sections)),
        **{f"_{name}.png": image.png for name, image in images.items()},
    }
    return write_files(prefix, files)


def write_files(prefix: epath.PathLike, files: Mapping[str, str | bytes]) -> list[str]:
    """Writes files that share a prefix.

    Args:
      prefix: a path, or a URL of a bucket; its folder is created.
      files: contents, by the suffix that follows the prefix.

    Returns:
      The names of the files.
    """
    written = []
    for suffix, content in files.items():
        path = epath.Path(f"{epath.Path(prefix)}{suffix}")
        write_file(path, content)
        written.append(str(path))
    return written


def _markdown(name: str, title: str, sections: Sequence[Section]) -> str:
    parts = [f"# {title}\n"]
    for section in sections:
        parts += [f"## {section.heading}\n"] if section.heading else []
        parts += [f"{paragraph}\n" for paragraph in section.text]
        parts += [table.markdown() for table in section.tables]
        parts += [
            f"![{escape_markdown(image.caption)}]({quote(f'{name}_{file}.png')})\n"
            for file, image in section.images.items()
        ]
        if section.answers:
            parts.append(samples_table(section.answers[:_SHOWN]).markdown(aligned=False))
    return "\n".join(parts)


def _html(section: Section) -> str:
    parts = [page.heading(section.heading)] if section.heading else []
    parts += [page.paragraph(paragraph) for paragraph in section.text]
    parts += [page.wide(table.html()) for table in section.tables]
    parts += [page.image(image.png, image.caption) for image in section.images.values()]
    return "".join(parts) + page.answers(section.answers)
