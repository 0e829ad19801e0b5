"""An answer needs a quote: a demonstration can't end in an answer before there is one."""

import pathlib

from tests.ratings.browsing import at_hill, served_site, steps_of


def test_a_quote_comes_before_the_end(tmp_path: pathlib.Path) -> None:
    with served_site(tmp_path) as served:
        person = at_hill(served, "Hasty")
        before = steps_of(served, "Hasty")
        for do in ("End: Answer", " End: Answer\n"):
            page = person.send(do=do)
            assert page.status == 422
            assert "Quote something first." in page.text
            assert steps_of(served, "Hasty") == before
        person.quote("burned down")
        assert "Write your answer" in person.send(do="End: Answer").text

        other = at_hill(served, "Puzzled")
        other.send(do="End: Nonsense")
        assert steps_of(served, "Puzzled")[-1] == "End: Nonsense"
