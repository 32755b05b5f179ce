"""The formulas between the cells of a contract refuse what Python refuses; an independent evaluator computes them."""

import formulas as outside
import pytest

import planner
from planner.errors import PlannerError
from planner.workbook.contract_rules import broken_rules
from planner.workbook.subject import subject

KINDS = "llama-3.1-70b gemma-3n-e2b deepseek-v3.2 deepseek-v4-flash qwen3-next-80b-a3b nemotron-h-56b gpt2".split()


def compiled(text: str):
    function = outside.Parser().ast(f"={text}")[1].compile()
    return lambda values: bool(function(*(float(values[name.lower()]) for name in function.inputs)))


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_contract_is_refused_where_python_refuses_it(name):
    one = subject(planner.load(name))
    broken = {sentence: compiled(text) for sentence, text in broken_rules(one).items()}
    assert not any(rule(one.values) for rule in broken.values())
    tried = set()
    for field in one.fields:
        for value in (1, field.value + 1, field.value * 2, 3 * field.value + 1, 999):
            said = [sentence for sentence, rule in broken.items() if rule({**one.values, field.name: value})]
            try:
                planner.edit(one.architecture, field.changes(value)).parts()
                refused = ""
            except PlannerError as error:
                refused = str(error)
            assert bool(said) == bool(refused), (field.path, value, said, refused)
            tried.update(said)
    assert tried >= set(broken) - {"shared_gate needs a shared expert; d_ff_shared"}  # no yellow cell may be 0


def test_a_sentence_stands_without_the_numbers_of_the_day():
    rules = broken_rules(subject(planner.load("llama-3.1-70b")))
    assert list(rules) == [
        "n_kv_heads does not divide n_heads",
        "head_dim is odd, and rotation turns elements in pairs",
    ]
