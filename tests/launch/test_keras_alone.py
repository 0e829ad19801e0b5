"""What training imports does without the packages that Keras would load."""

import sys

import keras_alone
import pytest


def test_what_is_hidden_is_there_again_and_what_was_there_stays(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    there = object()
    monkeypatch.setitem(sys.modules, "sklearn", there)
    with keras_alone.keras_alone():
        with pytest.raises(ImportError):
            import IPython
        assert sys.modules["sklearn"] is there
    import IPython

    assert IPython.__name__ == "IPython"
    assert sys.modules["sklearn"] is there


def test_it_is_there_again_after_an_error(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with pytest.raises(RuntimeError), keras_alone.keras_alone():
        raise RuntimeError
    assert "IPython" not in sys.modules
