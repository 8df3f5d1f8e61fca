import pytest

from logforge.rewards.scorers.base import Score, Scorer
from logforge.rewards.scorers.inputs import INPUTS
from logforge.rewards.scorers.registry import BUILT_IN, check_call, make_scorer, reads_of, registry
from logforge.schemas.errors import SpecError
from support.made_scores import dialogue, scored, spec_of

JUDGE = {"name": "judge", "url": "http://localhost/v1", "model": "m"}


def test_every_scorer_has_its_name_and_says_what_it_gives():
    assert list(registry()) == sorted(BUILT_IN)
    for name, kind in registry().items():
        assert kind.name == name
        assert kind.__doc__


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ({"name": "rouge"}, "unknown scorer 'rouge'. did you mean 'rouge_l'?"),
        ({"name": "rouge_l", "txt": "x"}, "unknown parameter of rouge_l 'txt'. did you mean 'text'?"),
        ({"name": "rouge_l", "text": "sayd"}, "unknown text 'sayd'. did you mean 'said'?"),
        ({"name": "rouge_l", "text": 3}, "text: must be a valid string"),
        ({"name": "similarity", "encoder": "bert"}, "unknown encoder 'bert'"),
        ({"name": "judge", "url": "http://h/v1"}, "required parameter 'model' of judge is missing"),
        ({**JUDGE, "url": "ftp://h"}, "must be the base URL"),
        ({**JUDGE, "url": "https://me:secret@h/v1"}, "must hold no user, password or query"),
        ({**JUDGE, "votes": 0}, "votes: must be greater than or equal to 1"),
        ({**JUDGE, "show": ["task", "answr"]}, "unknown text 'answr'. did you mean 'answer'?"),
        ({"name": "logged_judge", "low": 10}, "`low` must lie below `high`"),
        ({"name": "satisfaction", "rating": "stars"}, "rating: must be 'success' or 'score'"),
        ({"name": "perplexity", "order": 9}, "order: must be less than or equal to 5"),
    ],
)
def test_what_is_wrong_with_a_call(call, what):
    found = check_call(call, "terminal")
    assert found is not None
    assert what in found


def test_a_spec_names_the_line_of_a_wrong_call():
    with pytest.raises(SpecError) as caught:
        spec_of({"name": "rouge"})
    (problem,) = caught.value.problems
    assert problem.field == "terms.t.scorer"
    assert problem.line == 1


@pytest.mark.parametrize("name", INPUTS)
def test_a_step_is_never_scored_by_what_is_known_later(name):
    call = {"name": "rouge_l", "text": name}
    assert check_call(call, "end") is check_call(call, "terminal") is None
    early = check_call(call, "step")
    assert (early is None) == (INPUTS[name].known == "step")
    assert early is None or "known only when the episode is over" in early
    shown = check_call({**JUDGE, "text": "said", "show": [name]}, "step")
    assert (shown is None) == (early is None)


@pytest.mark.parametrize(
    ("call", "reads"),
    [
        ({"name": "rouge_l"}, "own words"),
        ({"name": "similarity", "text": "answer"}, "own words"),
        ({"name": "rouge_l", "text": "result"}, "world"),
        ({"name": "pass_rate"}, "world"),
        ({"name": "pass_rate", "text": "said"}, "own words"),
        ({"name": "satisfaction"}, "world"),
        ({"name": "exact_match", "text": "answer"}, "outcome"),
        ({"name": "logged_judge"}, "outcome"),
        (JUDGE, "own words"),
    ],
)
def test_what_decides_a_score(call, reads):
    assert reads_of(call) == reads


def test_a_version_changes_with_what_decides_a_score_alone():
    base = make_scorer(JUDGE).version()
    assert make_scorer({**JUDGE, "tries": 2, "per_minute": 5, "api_key_env": "K"}).version() == base
    for change in (
        {"model": "n"},
        {"votes": 3},
        {"prompt": "be strict"},
        {"show": ["task", "result"]},
        {"temperature": 0.0},
    ):
        assert make_scorer({**JUDGE, **change}).version() != base, change


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rouge_l", "It is 42.", 1.0),
        ("chrf", "It is 42.", 1.0),
        ("exact_match", "it is 42", 1.0),
        ("exact_match", "42", 0.0),
        ("numeric_match", "about 42 of them", 1.0),
        ("numeric_match", "about 43", 0.0),
    ],
)
def test_comparisons_with_a_reference(store, name, text, value):
    episodes = [dialogue(answer=text, reference="It is 42.")]
    assert scored(store, {"name": name, "text": "answer"}, episodes, at="terminal") == [(value, None)]


def test_a_missing_text_or_reference_is_null_with_a_reason_and_never_0(store):
    call = {"name": "rouge_l", "text": "said"}
    assert scored(store, call, [dialogue()], when="kind = 'respond'") == [(None, "missing reference")]
    assert scored(store, call, [dialogue(reference=" ")], at="end") == [(None, "missing reference")]
    silent = dialogue(first="", reference="x")
    assert scored(store, call, [silent], when="kind = 'tool'") == [(None, "missing said")]
    assert scored(store, {"name": "numeric_match"}, [dialogue(reference="many")], at="end") == [
        (None, "no number in reference")
    ]


def test_a_score_of_a_third_party_stays_within_bounds(store, monkeypatch):
    from logforge.rewards.scorers.base import Ready, each

    values = {"a": 3.0, "b": float("nan"), "c": -1.0, "d": None}

    class Wild(Scorer):
        """Gives anything."""

        name = "wild"

        def ready(self, resources):
            return Ready(self.version(), each(lambda texts: Score(values[texts[0]])))

    monkeypatch.setattr("logforge.rewards.scorers.registry.registry", lambda: {"wild": Wild})
    found = scored(store, "wild", [dialogue(name, answer=name) for name in "abcd"], at="end")
    assert found == [
        (1.0, None),
        (None, "the score is no finite number"),
        (0.0, None),
        (None, "was not scored"),
    ]


def test_lint_knows_what_decides_a_score():
    from logforge.rewards.lint.pipeline import lint
    from logforge.rewards.pipeline import parse_spec

    def rules(*terms):
        report = lint(parse_spec("gamma: 0.99\nterms:\n" + "".join(f"  {term}\n" for term in terms)))
        return report.passed, {finding.rule for finding in report.findings if "t" in finding.terms}

    cost = "cost: {value: -0.01}"
    passed, found = rules("t: {scorer: {name: similarity, text: answer, encoder: hashing}, at: end}", cost)
    assert not passed
    assert "own_words" in found
    passed, found = rules("t: {scorer: {name: exact_match, text: answer}, value: 5, at: terminal}", cost)
    assert passed
    assert "own_words" not in found
