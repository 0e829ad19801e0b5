"""The embedded search engine: what is found, changes, hostile queries, damaged files."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.documents import Document
from gophercite.retrieval.engine import Hit
from gophercite.retrieval.index import Changes, DocumentIndex
from gophercite.retrieval.index_file import APPLICATION_ID, IndexFileError
from tests.long_forms import LONG

ORMSBY = Document(
    "o",
    "Ormsby",
    "A town on the coast.\n\nIts lighthouse was built in 1874 by Anna Vell. " + "Rain falls. " * 80,
    "https://towns.example/ormsby",
    "2026-11-21T09:30:00Z",
)
ALDGATE = Document(
    "a", "Aldgate", "Aldgate has a harbour; the lighthouse of Ormsby is near. " + "Wind. " * 200
)
CAFE = Document("c", "Café Zürich", "Ein Café. Its coffees are good.", "https://cafe.example/a/b")
PAGES = (ORMSBY, ALDGATE, CAFE)


@pytest.fixture
def index() -> Iterator[DocumentIndex]:
    with DocumentIndex(None) as index:
        assert index.add(PAGES) == Changes(3, 0, 0)
        yield index


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add(PAGES)
    return tmp_path / "corpus.db"


def ids(hits: list[Hit]) -> list[str | None]:
    return [hit.id for hit in hits]


def test_best_page_first_with_the_part_that_answers(index: DocumentIndex) -> None:
    best, other = index.search("When was the lighthouse of Ormsby built?", 5)
    assert (best.id, best.url, best.title) == ("o", ORMSBY.url, "Ormsby")
    assert "lighthouse was built in 1874" in best.snippet
    assert best.snippet.strip("…") in ORMSBY.text
    assert (other.id, other.url) == ("a", "")
    assert index.document("o") == ORMSBY


def test_words_are_found_in_other_forms(index: DocumentIndex) -> None:
    assert ids(index.search("coffee", 1)) == ["c"]
    assert ids(index.search("CAFE zurich", 1)) == ["c"]


def test_number_of_hits(index: DocumentIndex) -> None:
    assert len(index.search("lighthouse", 1)) == 1
    assert index.search("submarine", 9) == []
    with pytest.raises(ValueError, match="at least 1"):
        index.search("lighthouse", 0)


def test_filters_leave_enough_hits(index: DocumentIndex) -> None:
    assert ids(index.search("lighthouse site:towns.example", 1)) == ["o"]
    assert ids(index.search("lighthouse -site:towns.example", 1)) == ["a"]
    assert index.search("site:towns.example", 5) == []
    # The filter of one search is not that of the next.
    assert ids(index.search("lighthouse", 5)) == ["o", "a"]


def test_snippet_of_one_endless_word_is_cut() -> None:
    with DocumentIndex(None) as index:
        index.add([Document("x", "lamp", "A" * 100_000)])
        assert len(index.search("lamp", 1)[0].snippet) == 1000


def test_null_characters_cut_nothing_from_a_snippet() -> None:
    text = "Otters hold hands. The \0 sea otter eats urchins, up to \0 nine a day."
    with DocumentIndex(None, write=True) as index:
        index.add([Document("o", "Otters", text)])
        (hit,) = index.search("urchins", 1)
        assert hit.snippet == index.document("o").text == text.replace("\0", "\ufffd")


def test_texts_with_null_characters_of_earlier_versions_are_read(path: pathlib.Path) -> None:
    """Documents then kept null characters."""
    page, text = Document("n", "N", "The \0 otter."), "The \0 otter."
    with DocumentIndex(path, write=True) as index:
        index.add([page])
    digest = hashlib.sha256(text.encode()).hexdigest()
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE documents SET text = ?, sha256 = ? WHERE id = 'n'", (text, digest))
    with DocumentIndex(path, write=True) as index:
        assert index.document("n") == page
        assert index.add([page]).updated == 1, "which makes snippets whole"
        assert index.add([page]).unchanged == 1
        hits = index.search("otter", 9)
    assert "The \ufffd otter." in [hit.snippet for hit in hits]


def test_update_and_delete(index: DocumentIndex) -> None:
    newer = Document(
        "o", "Ormsby", "Its windmill burned down.", retrieved_at="2026-12-01T00:00:00Z"
    )
    assert index.add([newer, ALDGATE]) == Changes(0, 1, 1)
    assert index.document("o") == newer
    assert ids(index.search("windmill", 5)) == ["o"]
    assert ids(index.search("lighthouse", 5)) == ["a"]
    assert index.delete(["a", "nobody", "a"]) == 1
    assert index.search("lighthouse", 5) == []
    with pytest.raises(KeyError):
        index.document("a")
    assert [document.id for document in index.documents()] == ["c", "o"]
    assert len(index) == 2
    index.check()


def test_equal_digests_are_of_equal_documents(index: DocumentIndex) -> None:
    digest = index.digest()
    index.add(PAGES)
    assert index.digest() == digest
    found = {digest}
    pages = Document("p", "Plan", "One. Two.", page_starts=(0, 5))
    for changed in (
        dataclasses.replace(CAFE, text="Ein Café."),
        dataclasses.replace(CAFE, title="Café"),
        dataclasses.replace(CAFE, url=None),
        dataclasses.replace(CAFE, retrieved_at="2026-12-01T00:00:00Z"),
        pages,
        dataclasses.replace(pages, page_starts=(0, 4)),
    ):
        index.add([changed])
        found.add(index.digest())
    assert len(found) == 7
    index.delete("p")
    index.add([CAFE])
    assert index.digest() == digest


def test_documents_of_an_address(index: DocumentIndex) -> None:
    other = Document("o2", "Ormsby again", "x", ORMSBY.url)
    index.add([other])
    assert index.documents_at("https://towns.example/ormsby") == [ORMSBY, other]
    assert index.documents_at("https://nowhere.example/") == []


def test_all_documents_are_added_or_none(path: pathlib.Path) -> None:
    def failing() -> Iterator[Document]:
        yield Document("n", "New", "A zeppelin.")
        raise RuntimeError("the source broke off")

    with DocumentIndex(path, write=True) as index:
        with pytest.raises(RuntimeError):
            index.add(failing())
        assert index.search("zeppelin", 5) == []
        assert index.add([Document("n", "New", "A zeppelin.")]) == Changes(1, 0, 0)


documents = st.builds(
    Document,
    id=st.sampled_from("abcd"),
    title=st.text(max_size=5),
    text=st.text(max_size=30),
    url=st.none() | st.just("https://x.example/"),
)
changes = st.lists(st.lists(documents, max_size=4) | st.sampled_from("abcd"), max_size=8)


@given(changes)
def test_index_is_what_its_changes_make_it(steps: list[list[Document] | str]) -> None:
    """After any changes the index is sound, and holds what a dictionary would."""
    expected: dict[str, Document] = {}
    with DocumentIndex(None) as index:
        for step in steps:
            if isinstance(step, str):
                assert index.delete([step]) == (expected.pop(step, None) is not None)
            else:
                index.add(step)
                expected |= {document.id: document for document in step}
        assert {document.id: document for document in index.documents()} == expected
        index.check()


HOSTILE = [
    "", " ", '"', "'", "*", "NEAR(", "a AND", "NOT", "OR OR", "title:x", "{", "-", "^a", "a\0b",
    "\ud800", "'; DROP TABLE documents; --", "_", "٣",
    "x" * 100_000, "a b " * 50_000, "\u0301", "col : *",
]  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE, ids=lambda q: repr(q[:12]))
def test_hostile_queries_are_queries(index: DocumentIndex, query: str) -> None:
    assert len(index.search(query, 5)) <= 5
    assert {"o", "a"} <= set(ids(index.search("lighthouse " + query, 5)))


_SHARED = DocumentIndex(None)
_SHARED.add(PAGES)


@given(st.text(st.characters() | st.sampled_from("\"'*():^-{}+ \0_")))
def test_any_string_is_a_query(query: str) -> None:
    for hit in _SHARED.search(query, 3):
        assert hit.id is not None
        assert hit.snippet.strip("…") in _SHARED.document(hit.id).text


@given(st.sampled_from(PAGES), st.data())
def test_page_is_found_by_its_words(page: Document, data: st.DataObject) -> None:
    words = [word.strip(".,;") for word in page.text.split()[:12]]
    word = data.draw(st.sampled_from(words))
    assert page.id in ids(_SHARED.search(word, 3))


def test_readers_read_while_one_writes(path: pathlib.Path) -> None:
    """Every search sees the index before an update or after it, never between."""

    def read(_: int) -> None:
        with DocumentIndex(path) as index:
            for _ in range(30):
                assert len(index.search("lighthouse zeppelin", 100)) in (2, 12, 22)

    def write() -> None:
        with DocumentIndex(path, write=True) as index:
            for batch in range(2):
                index.add(Document(f"{batch}-{i}", "Z", "A zeppelin.") for i in range(10))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(write), *(pool.submit(read, i) for i in range(3))]:
            future.result()


def test_readers_go_on_while_much_is_added(path: pathlib.Path) -> None:
    """More than fits into SQLite's cache is written, but not yet agreed upon."""

    def documents() -> Iterator[Document]:
        for i in range(2000):
            yield Document(str(i), "New", f"zeppelin {i} " * 150)
        with DocumentIndex(path) as reader:
            assert reader.search("zeppelin", 5) == []
            assert len(reader.search("lighthouse", 5)) == 2

    with DocumentIndex(path, write=True) as index:
        assert index.add(documents()).added == 2000
    assert list(path.parent.iterdir()) == [path]


def test_index_can_be_made_of_itself(index: DocumentIndex) -> None:
    upper = (Document(d.id, d.title.upper(), d.text) for d in index.documents())
    assert index.add(upper) == Changes(0, 3, 0)
    assert index.document("o").title == "ORMSBY"


def test_faults_of_the_source_are_its_own(index: DocumentIndex) -> None:
    def failing() -> Iterator[Document]:
        yield Document("n", "New", b"\xff".decode("utf-8"))

    with pytest.raises(UnicodeDecodeError):
        index.add(failing())


def test_several_make_a_new_file_at_once(tmp_path: pathlib.Path) -> None:
    def make(number: int) -> None:
        with DocumentIndex(tmp_path / "new.db", write=True) as index:
            index.add([Document(str(number), "T", "A ship.")])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(8)))
    with DocumentIndex(tmp_path / "new.db") as index:
        assert len(index) == 8
        index.check()


def test_threads_share_one_object(path: pathlib.Path) -> None:
    queries = ["lighthouse", "lighthouse site:towns.example", "coffee -site:towns.example"] * 20
    with DocumentIndex(path) as index, concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: ids(index.search(query, 5)), queries))
    assert found == [["o", "a"], ["o"], ["c"]] * 20


def test_reading_does_not_write(path: pathlib.Path) -> None:
    before = path.read_bytes()
    with DocumentIndex(path) as index:
        index.search("lighthouse", 3)
        index.check()
        with pytest.raises(IndexFileError, match="write=True"):
            index.add([ORMSBY])
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_file_that_may_not_be_written_can_be_read(path: pathlib.Path) -> None:
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        with DocumentIndex(path) as index:
            assert ids(index.search("coffee", 1)) == ["c"]
    finally:
        path.parent.chmod(0o755)


def test_killed_writer_leaves_the_index_as_it_was(path: pathlib.Path) -> None:
    """SIGKILL in the middle of a large addition, its pages partly in the file already."""
    program = """
import os, signal, sys
from gophercite.documents import Document
from gophercite.retrieval.index import DocumentIndex

def documents():
    for i in range(3000):
        yield Document(str(i), "New", f"zeppelin {i} " * 150)
    os.kill(os.getpid(), signal.SIGKILL)

with DocumentIndex(sys.argv[1], write=True) as index:
    index.add(documents())
"""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run([sys.executable, "-c", program, path], env=environment)
    assert killed.returncode == -signal.SIGKILL
    assert path.with_name("corpus.db-wal").stat().st_size > 1 << 20
    with DocumentIndex(path) as index:
        assert len(index) == 3
        assert index.search("zeppelin", 5) == []
        index.check()


def refusal(path: pathlib.Path, *, write: bool = False) -> str:
    """What the user is told of a file; one line that names it."""

    def use() -> None:
        with DocumentIndex(path, write=write) as index:
            index.search("lighthouse", 3)
            index.check()

    with pytest.raises(IndexFileError) as raised:
        use()
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("write", [False, True])
def test_foreign_files_are_named(path: pathlib.Path, write: bool) -> None:
    text = path.with_name("text.db")
    text.write_text("No database, " * 1000)
    assert "it is not even a database" in refusal(text, write=write)
    assert text.read_text() == "No database, " * 1000

    other = path.with_name("other.db")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE documents (id)")
    assert "but another database" in refusal(other, write=write)
    refusal(path.parent, write=write)  # a folder


def test_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    assert "no such index" in refusal(tmp_path / "nowhere.db")
    with pytest.raises(IndexFileError):
        DocumentIndex(tmp_path / "no" / "folder.db", write=True)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("PRAGMA user_version = 9", "has format 9"),
        ("CREATE TRIGGER t AFTER INSERT ON documents BEGIN SELECT 1; END", "its tables"),
        ("CREATE VIEW words_too AS SELECT 1", "its tables"),
        ("DROP INDEX documents_by_url", "its tables"),
        ("UPDATE documents SET text = 'forged' WHERE id = 'o'", "was changed after it was stored"),
        ("UPDATE documents SET text = x'ff' WHERE id = 'o'", "is damaged"),
        ("DELETE FROM words_data WHERE id > 10", "damaged"),
    ],
)
def test_altered_files_are_named(path: pathlib.Path, statement: str, expected: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    assert expected in refusal(path)


def test_damaged_files_are_named_or_give_true_text(path: pathlib.Path) -> None:
    """Whatever byte is hit: an error that names the file, or the very text that was stored."""
    whole = path.read_bytes()
    generator = random.Random(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(20):
            damaged[generator.randrange(len(whole))] = generator.randrange(256)
        path.write_bytes(damaged)
        try:
            with DocumentIndex(path) as index:
                for hit in index.search("lighthouse", 5):
                    assert hit.id is not None
                    assert index.document(hit.id).text in {page.text for page in PAGES}
                index.check()
        except (IndexFileError, KeyError):
            refused += 1
    assert refused > 30


def test_file_is_known_by_its_first_bytes(path: pathlib.Path) -> None:
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID == 0x47435445


def test_an_sqlite_without_full_text_search_is_explained(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connection(sqlite3.Connection):
        """Answers as an SQLite does that was built without FTS5."""

        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if "fts5" in sql:
                raise sqlite3.OperationalError("no such module: fts5")
            return super().execute(sql, *args)

    connect = functools.partial(sqlite3.connect, factory=Connection)
    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(IndexFileError, match="import sqlite3 or gophercite"):
        DocumentIndex(tmp_path / "new.db", write=True)


def test_the_data_pipelines_load_sqlite_before_tensorflow() -> None:
    """A process that ends where TensorFlow would be loaded; the next test goes on."""
    script = """
import gc, sys
gc.disable()  # what is imported stays
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            print("_sqlite3" in sys.modules, flush=True)
            raise SystemExit
sys.meta_path.insert(0, Stop())
import data_pipelines.tasks
"""
    root = pathlib.Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root)
    assert run.stdout == "True\n", run.stderr


@LONG
def test_the_data_pipelines_leave_full_text_search_alone() -> None:
    """TensorFlow brings an SQLite of its own, which has none, for whoever loads theirs later."""
    script = """
import data_pipelines.tasks
from gophercite.documents import Document
from gophercite.retrieval.index import DocumentIndex
index = DocumentIndex(None)
index.add([Document("m", "The mill", "It had 14 wheels.")])
print([hit.title for hit in index.search("wheels", 3)])
"""
    root = pathlib.Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root)
    assert run.stdout == "['The mill']\n", run.stderr


PDF = Document("p", "Report", "One page.\n\nAnother page.", page_starts=(0, 11))


def test_pages_are_kept(path: pathlib.Path) -> None:
    with DocumentIndex(path, write=True) as index:
        assert index.add([dataclasses.replace(PDF, page_starts=())]).added == 1
        assert index.add([PDF]).updated == 1
        assert index.add([PDF]).unchanged == 1
    with DocumentIndex(path) as index:
        assert index.document("p") == PDF
        assert [page.page_starts for page in index.documents()][-1] == (0, 11)
        assert index.documents_with(PDF.sha256) == [PDF]
    with DocumentIndex(path, write=True) as index:
        assert index.delete(["p"]) == 1
        index.add([dataclasses.replace(PDF, page_starts=())])
        assert index.document("p").page_starts == ()  # none are left from the one before
        index.check()


def test_an_index_from_before_there_were_pages(path: pathlib.Path) -> None:
    with DocumentIndex(path, write=True) as index:
        before = list(index.documents())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TABLE pages; DROP TABLE sources; PRAGMA user_version = 1;")
    with DocumentIndex(path) as index:
        assert list(index.documents()) == before
        index.check()
    with DocumentIndex(path, write=True) as index:
        index.add([PDF])
    with DocumentIndex(path) as index:
        assert list(index.documents()) == [*before, PDF]


@pytest.mark.parametrize("starts", ["[0, 99]", "[1]", "[null]", "x", "[" * 100_000, "{}"])
def test_damaged_pages_are_refused(path: pathlib.Path, starts: str) -> None:
    with DocumentIndex(path, write=True) as index:
        index.add([PDF])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE pages SET starts = ?", (starts,))
        connection.commit()
    with DocumentIndex(path) as index, pytest.raises(IndexFileError, match="is damaged"):
        index.document("p")
