"""The vocabulary: its words are legal everywhere, its letters are told apart."""

from dataclasses import replace

import pytest

from planner.errors import PlannerError, UnknownName
from planner.quantities import QUANTITIES, UNITS, described, quantity


@pytest.mark.parametrize("word", ["r", "c", "rc", "r1", "c12", "r1c1", "b1", "tp8", "log10", "xfd1048576"])
def test_words_that_look_like_a_cell_are_refused(word):
    with pytest.raises(PlannerError, match=r"a spreadsheet takes this word for a cell"):
        replace(quantity("batch"), word=word)


@pytest.mark.parametrize("word", ["R", "C", "B1", "TP8", "", "a b", "_x", "x_", "x__y", "1x", "n-layers"])
def test_words_are_plain_lower_case(word):
    with pytest.raises(PlannerError, match="a word is made of"):
        replace(quantity("batch"), word=word)


def test_every_word_has_a_letter_of_its_own_and_a_meaning():
    letters = [q.letter for q in QUANTITIES.values()]
    assert len(set(letters)) == len(letters)
    for word, q in QUANTITIES.items():
        assert q.word == word
        assert q.unit in UNITS
        assert q.meaning
        assert not q.meaning.endswith(".")


def test_an_unknown_unit_is_refused():
    with pytest.raises(PlannerError, match=r"quantity 'batch': unit 'GiB' is none of 1, B, B/s,"):
        replace(quantity("batch"), unit="GiB")


def test_an_unknown_word_gets_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown quantity 'n_kv_head'; did you mean 'n_kv_heads'\?"):
        quantity("n_kv_head")
    assert described("n_kv_head") == "n_kv_head"
