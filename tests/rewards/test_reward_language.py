"""Words of the reward language beyond a plain term: bounds, diminishing pay, potentials, layers, shared expressions, files,
detectors. Each against a reading of its definition in plain Python."""

import math
from functools import reduce
from operator import add

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.core.frames import tables_of
from logforge.rewards.pipeline import Scale, compile_query, fit_scales, load_spec, parse_spec, score
from logforge.schemas.episode import Message
from logforge.schemas.errors import SpecError, UsageError
from support.made_rewards import episode, problems, random_episodes, spec_of, step, values


def rewards_of(spec, made, **more):
    return score(spec, tables_of(made), **more)


# -- size: scale, clip, diminishing -----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    random_episodes(),
    st.sampled_from([1.0, -2.0, 0.5]),
    st.sampled_from([None, (0.5, 2.0), (None, 1.0), (-1.0, None)]),
    st.sampled_from([None, 0.5, 0.25]),
    st.sampled_from([None, 1, 2]),
)
def test_an_amount_is_scaled_then_clipped_then_diminished_where_it_pays(
    made, scale, clip, diminishing, limit
):
    words = f"when: kind = 'tool', value: step + 1, scale: {scale}"
    words += "" if clip is None else f", clip: [{', '.join('null' if b is None else str(b) for b in clip)}]"
    words += "" if diminishing is None else f", diminishing: {diminishing}"
    words += "" if limit is None else f", max_per_episode: {limit}"
    found = values(rewards_of(spec_of(f"a: {{{words}}}"), made), "a")
    expected = []
    for one in made:
        paid = 0
        for s in one.steps:
            fires = s.kind == "tool"
            amount = (s.step + 1) * scale
            if clip is not None:
                amount = max(amount, -math.inf if clip[0] is None else clip[0])
                amount = min(amount, math.inf if clip[1] is None else clip[1])
            amount *= (diminishing or 1.0) ** paid
            expected.append(amount if fires and (limit is None or paid < limit) else 0.0)
            paid += fires
    assert found == pytest.approx(expected)


def test_what_is_no_number_is_missing_and_not_at_the_bound():
    frame = rewards_of(spec_of("a: {value: 1 / step, clip: [0, 5]}"), [episode("e", [step(0), step(1)])])
    assert values(frame, "a") == [None, 1.0]
    assert frame["null_reason"][0] == "a: value is not finite"


# -- potentials -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(random_episodes(), st.sampled_from([1.0, 0.9, 0.5]))
def test_a_potential_telescopes(made, gamma):
    """Σ γ^t F_t = γ^T Φ(s_T) − Φ(s_0), with Φ = 0 at a true end and kept at a truncation (Ng, Harada, Russell 1999)."""
    spec = spec_of(
        "a: {when: errors_so_far < 3, value: step * 2 + errors_so_far + 1, potential: true}", gamma=gamma
    )
    frame = rewards_of(spec, made)
    for one in made:
        sums = frame.filter(episode_id=one.episode_id)["reward"].to_list()
        errors = sum(s.result_status in ("error", "timeout") for s in one.steps)
        length = len(one.steps)
        last = length * 2 + errors + 1 if errors < 3 and one.ending == "truncated" else 0
        assert sum(gamma**t * r for t, r in enumerate(sums)) == pytest.approx(
            gamma**length * last - 1, abs=1e-9
        )


def test_a_potential_is_a_function_of_the_state():
    (found,) = problems("gamma: 1\nterms:\n  a: {value: repeats, potential: true}\n")
    assert "known only later" in found.what
    assert found.line == 3
    for words in ("at: end", "once: true", "diminishing: 0.5", "optional: true"):
        (found,) = problems(f"gamma: 1\nterms:\n  a: {{potential: true, {words}}}\n")
        assert "potential" in found.what


def test_a_potential_leaves_the_number_of_rows_and_other_terms_alone():
    made = [episode("e", [step(0, "a", "error"), step(1, "a", "ok"), step(2)], success=True)]
    words = (
        "end: {at: end}",
        "left: {value: n_steps - step}",
        "again: {value: repeats}",
        "errors: {value: errors_so_far}",
    )
    plain = rewards_of(spec_of(*words), made)
    shaped = rewards_of(spec_of(*words, "z: {value: calls_so_far, potential: true}"), made)
    for name in ("end", "left", "again", "errors"):
        assert values(plain, name) == values(shaped, name)


# -- layers -----------------------------------------------------------------------------------------------------------

LAYERED = """\
gamma: 0.99
layers:
  base:
    weight: 0.4
    terms:
      turn: {value: -0.1}
      solved: {when: success, value: 5, at: terminal, weight: 3}
  quality:
    weight: 0.6
    terms:
      fluency: {value: score, scale: -1, at: end}
"""


def layered_episodes():
    return [
        episode(f"e{n}", [step(i) for i in range(2 + n)], success=n % 2 == 0, score=20.0 + 7 * n)
        for n in range(5)
    ]


def test_a_layer_is_worth_its_weight_whatever_its_units():
    spec, tables = parse_spec(LAYERED), tables_of(layered_episodes())
    frame = score(spec, tables, fit_scales(spec, tables))
    terms = frame.explode("reward_terms").unnest("reward_terms")
    sums = (
        terms.group_by("key", "episode_id")
        .agg(pl.col("value").sum())
        .group_by("key")
        .agg(pl.col("value").std(ddof=0))
    )
    assert dict(sums.iter_rows()) == pytest.approx({"turn": 0.1, "solved": 0.3, "fluency": 0.6})
    assert terms.filter(key="fluency").group_by("episode_id").agg(pl.col("value").sum())[
        "value"
    ].sum() == pytest.approx(0)
    for row, reward in zip(frame["reward_terms"], frame["reward"], strict=True):
        assert reward == reduce(add, [t["value"] for t in row])


def test_scales_change_units_and_nothing_else():
    spec, tables = parse_spec(LAYERED), tables_of(layered_episodes())
    other = parse_spec(
        LAYERED.replace("value: score", "value: score * 1000").replace("value: -0.1", "value: -7")
    )
    ours, theirs = (score(s, tables, fit_scales(s, tables)) for s in (spec, other))
    assert ours["reward"].to_list() == pytest.approx(theirs["reward"].to_list())


def test_a_constant_term_does_not_explode():
    tables = tables_of([episode(f"e{n}", [step(0)], score=2.0) for n in range(3)])
    spec = parse_spec(
        "gamma: 1\nlayers: {a: {weight: 1, terms: {x: {value: score, at: end}, y: {value: 0}}}}\n"
    )
    assert fit_scales(spec, tables) == {"x": Scale(2.0, 2.0), "y": Scale(0.0, 1.0)}
    assert score(spec, tables, fit_scales(spec, tables))["reward"].to_list() == [0, 0, 0]


def test_a_layer_can_be_left_as_it_is():
    spec = parse_spec(
        "gamma: 1\nlayers: {a: {weight: 1, normalise: none, terms: {x: {value: 3, weight: 2}, y: {value: 4, weight: 2}}}}\n"
    )
    assert fit_scales(spec, tables_of([])) == {}
    assert rewards_of(spec, [episode("e", [step(0)])])["reward"].to_list() == [3.5]


def test_layers_need_their_scales():
    with pytest.raises(UsageError, match="fit_scales"):
        rewards_of(parse_spec(LAYERED), layered_episodes())
    assert "to be normalised by scales fitted on the train split" in compile_query(parse_spec(LAYERED))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("layers: {a: {weight: 0.5, terms: {x: {}}}}", "sum to 0.5, they must sum to 1"),
        ("layers: {a: {weight: 1, terms: {x: {}}}}\nterms: {x: {}}", "term 'x' is there twice"),
        ("layers: {a: {weight: 1, terms: {}}}", "at least 1 item"),
        ("layers: {a: {weight: 2, terms: {x: {}}}}", "less than or equal to 1"),
        ("layers: {a: {wait: 1, weight: 1, terms: {x: {}}}}", "did you mean 'weight'?"),
        ("layers: {a: {weight: 1, terms: {x: {wen: true}}}}", "did you mean 'when'?"),
        ("layers: {a: {weight: 1, normalise: spred, terms: {x: {}}}}", "did you mean 'spread'?"),
        ("layers: {a: {weight: 1, terms: {x: {when: sucess}}}}", "did you mean 'success'?"),
        ("terms: {x: {clip: [2, 1]}}", "low bound lies above"),
        ("terms: {x: {clip: [null, null]}}", "one side"),
        ("terms: {x: {diminishing: 1}}", "less than 1"),
        ("terms: {x: {scale: .inf}}", "finite"),
        ("terms: {x: {when: completeness < 1}}", "completeness needs `detectors: {completeness: …}`"),
        ("terms: {x: {when: came_back}}", "came_back needs"),
        ("terms: {x: {}}\ndetectors: {lop: {within: 3}}", "did you mean 'loop'?"),
        ("terms: {x: {}}\ndetectors: {loop: {witin: 3}}", "did you mean 'within'?"),
        ("terms: {x: {}}\ndetectors: {completeness: {}}", "needs `tools` or `slots`"),
    ],
)  # fmt: skip
def test_what_is_refused(text, what):
    found = problems(f"gamma: 1\n{text}\n")
    assert what in "\n".join(p.what for p in found)
    assert all(p.path == "spec.yaml" and p.line for p in found if p.field)


# -- shared expressions and files -------------------------------------------------------------------------------------


def test_a_shared_expression_means_what_it_stands_for():
    shared = parse_spec(
        "gamma: 1\nlet:\n  failed: result_status in ('error', 'timeout')\n  stuck: failed and repeats > 0\n  limit: 2\n"
        "terms:\n  a: {when: stuck or step > limit}\n  b: {value: 1 + limit}\n"
    )
    written_out = parse_spec(
        "gamma: 1\nterms:\n  a: {when: \"(result_status in ('error', 'timeout') and repeats > 0) or step > 2\"}\n  b: {value: 1 + 2}\n"
    )
    assert shared.hash == written_out.hash
    assert compile_query(shared) == compile_query(written_out)


@pytest.mark.parametrize(
    ("lets", "what"),
    [
        ("a: b\n  b: success", "unknown column 'b'"),
        ("a: a", "unknown column 'a'"),
        ("step: success", "step is a column's name"),
        ("x: 1; drop table y", "not statements"),
    ],
)
def test_a_shared_expression_may_use_those_before_it(lets, what):
    found = problems(f"gamma: 1\nlet:\n  {lets}\nterms: {{t: {{}}}}\n")
    assert what in found[0].what
    assert (found[0].path, found[0].line) == ("spec.yaml", 3)


def test_files_include_files(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "costs.yaml").write_text(
        "gamma: 0.5\nlet: {slow: latency_s > 3}\nterms:\n  cost: {value: -0.1}\n"
    )
    (tmp_path / "base" / "both.yaml").write_text("include: [costs.yaml]\nterms:\n  end: {at: end}\n")
    main = tmp_path / "main.yaml"
    main.write_text("gamma: 0.9\ninclude: [base/both.yaml]\nterms:\n  late: {when: slow, value: -1}\n")
    spec = load_spec(main)
    assert spec.names == ["cost", "end", "late"]
    assert spec.gamma == 0.9
    assert (
        spec.hash
        == parse_spec(
            "gamma: 0.9\nterms: {cost: {value: -0.1}, end: {at: end}, late: {when: latency_s > 3, value: -1}}\n"
        ).hash
    )


def test_a_problem_in_an_included_file_names_that_file(tmp_path):
    (tmp_path / "a.yaml").write_text("terms:\n  cost: {value: -0.1}\n  bad: {when: sucess}\n")
    (tmp_path / "m.yaml").write_text("gamma: 1\ninclude: [a.yaml]\nterms:\n  cost: {value: 1}\n")
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "m.yaml")
    found = {p.field: (p.path.rpartition("/")[2], p.line, p.what) for p in caught.value.problems}
    assert found["terms.bad.when"][:2] == ("a.yaml", 3)
    assert found["terms.cost"][:2] == ("m.yaml", 4)
    assert "is there already" in found["terms.cost"][2]
    assert "a.yaml:2" in found["terms.cost"][2]


def test_circles_and_missing_files_are_said(tmp_path):
    (tmp_path / "a.yaml").write_text("gamma: 1\ninclude: [b.yaml, nowhere.yaml]\nterms: {x: {}}\n")
    (tmp_path / "b.yaml").write_text("include: [a.yaml]\nterms: {y: {}}\n")
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "a.yaml")
    said = "\n".join(p.what for p in caught.value.problems)
    assert "in a circle" in said
    assert "nowhere.yaml" in said


# -- detectors --------------------------------------------------------------------------------------------------------


def fired(made, *columns, detectors=""):
    terms = "".join(f"  {name}: {{when: {name}}}\n" for name in columns)
    spec = parse_spec(f"gamma: 1\nterms:\n{terms}{f'detectors: {detectors}' if detectors else ''}\n")
    frame = rewards_of(spec, made)
    return {name: values(frame, name) for name in columns}


def test_loop_looks_back_so_far_and_no_further():
    calls = [step(0, "a", "ok"), step(1, "b", "ok"), step(2, "a", "ok"), step(3), step(4), step(5, "b", "ok")]
    made = [episode("e", calls)]
    assert fired(made, "loop")["loop"] == [0, 0, 1, 0, 0, 0]
    assert fired(made, "loop", detectors="{loop: {within: 4}}")["loop"] == [0, 0, 1, 0, 0, 1]
    assert fired(made, "loop", detectors="{loop: {within: 1}}")["loop"] == [0] * 6


def test_no_progress_counts_calls_that_bring_nothing_new():
    calls = [
        step(0, "a", "ok", result="x"),
        step(1, "b", "ok", result="x"),
        step(2),
        step(3, "a", "error", result="boom"),
        step(4, "a", "empty"),
        step(5, "a", "ok", result="new"),
        step(6, "a", "ok", result="x"),
    ]
    found = fired([episode("e", calls)], "no_progress", detectors="{no_progress: {calls: 2}}")
    assert found["no_progress"] == [0, 0, 0, 1, 1, 0, 0]


def test_invalid_tool_runtime_error_and_clarify():
    calls = [
        step(0, "ghost", "error", action_valid=False),
        step(1, "clarify"),
        step(2, "a", "timeout"),
        step(3, "a", "ok"),
    ]
    found = fired([episode("e", calls)], "invalid_tool", "runtime_error", "clarify")
    assert found == {"invalid_tool": [1, 0, 0, 0], "runtime_error": [1, 0, 1, 0], "clarify": [0, 1, 0, 0]}


def test_completeness_counts_tools_that_worked_and_slots_that_were_filled():
    calls = [
        step(0, "find", "error", arguments='{"city":"Rome"}'),
        step(1, "find", "ok", arguments='{"city":"","it\\"s":null}'),
        step(2, "book", "ok", arguments='{"it\\"s":1}'),
        step(3),
    ]
    spec = parse_spec(
        "gamma: 1\ndetectors: {completeness: {tools: [find, book], slots: [city, 'it\"s']}}\n"
        "terms: {now: {value: completeness}, before: {value: done_so_far}}\n"
    )
    frame = rewards_of(spec, [episode("e", calls)])
    assert values(frame, "now") == [0.25, 0.5, 1.0, 1.0]
    assert values(frame, "before") == [0.0, 0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("calls", "ending", "premature"),
    [
        ([step(0, "a", "ok"), step(1)], "terminal", False),
        ([step(0, "a", "ok"), step(1, "a", "error"), step(2)], "terminal", True),
        ([step(0, "a", "refused"), step(1)], "terminal", True),
        ([step(0)], "terminal", False),
        ([step(0, "a", "missing"), step(1)], "terminal", True),
        ([step(0, "a", "error")], "truncated", False),
    ],
)
def test_premature_close(calls, ending, premature):
    found = fired([episode("e", calls, ending=ending)], "premature_close")["premature_close"]
    assert found == [0] * (len(calls) - 1) + [int(premature)]


def test_a_task_that_is_not_complete_is_closed_too_early():
    made = [episode("e", [step(0, "a", "ok"), step(1)])]
    assert fired(made, "premature_close", detectors="{completeness: {tools: [a, b]}}")["premature_close"] == [
        0,
        1,
    ]


def test_a_user_who_comes_back_was_not_helped():
    minute = 60_000_000
    made = [
        episode("a", [step(0, "t", "ok")], user_id="u", started_at=0, ended_at=5 * minute),
        episode("b", [step(0, "t", "ok")], user_id="u", started_at=6 * minute, ended_at=9 * minute),
        episode("c", [step(0, "t", "ok")], user_id="v", started_at=6 * minute, ended_at=9 * minute),
        episode("d", [step(0, "t", "ok")]),
    ]
    settings_ = "{came_back: {within_s: 90}}"
    spec = parse_spec(
        f"gamma: 1\nterms: {{x: {{when: came_back, optional: true}}}}\ndetectors: {settings_}\n"
    )
    assert values(rewards_of(spec, made), "x") == [1, 0, 0, None]
    closed = parse_spec(
        f"gamma: 1\nterms: {{x: {{when: premature_close, optional: true}}}}\ndetectors: {settings_}\n"
    )
    assert values(rewards_of(closed, made), "x") == [1, 0, 0, None]


# -- columns of the messages ------------------------------------------------------------------------------------------


def spoken():
    texts = [
        ("system", "s", {}), ("user", "hello", {}), ("assistant", "which?", {"tokens_in": 5, "tokens_out": 2, "cost_usd": 0.5}),
        ("user", "this", {}), ("user", "one", {}), ("assistant", None, {"tokens_out": 4, "thought": "hm"}), ("tool", "r", {}),
        ("assistant", "done", {}),
    ]  # fmt: skip
    messages = [Message(i, role, text, f"a:{i}", **more) for i, (role, text, more) in enumerate(texts)]
    steps = [
        step(0, "clarify"), step(1, "a", "ok"), step(2, "b", "ok"), step(3),
    ]  # fmt: skip
    places = [2, 5, 5, 7]
    steps = [msgspec.structs.replace(s, position=place) for s, place in zip(steps, places, strict=True)]
    return msgspec.structs.replace(episode("e", steps), messages=messages)


def test_texts_tokens_and_cost_belong_to_the_turn():
    spec = spec_of(
        "said: {when: \"said = 'which?'\"}",
        "thought: {when: \"thought = 'hm'\"}",
        "reply: {when: \"starts_with(user_reply, 'this') and ends_with(user_reply, 'one')\"}",
        "tokens: {value: tokens, optional: true}",
        "cost: {value: cost, optional: true}",
        "sofar: {value: tokens_so_far}",
        "spent: {value: cost_so_far}",
    )
    frame = rewards_of(spec, [spoken()])
    assert values(frame, "said") == [1, 0, 0, 0]
    assert values(frame, "thought") == [0, 1, 1, 0]
    assert values(frame, "reply") == [1, 0, 0, 0]
    assert values(frame, "tokens") == [7, 4, 0, None]
    assert values(frame, "cost") == [0.5, None, 0, None]
    assert values(frame, "sofar") == [0, 7, 11, 11]
    assert values(frame, "spent") == [0, 0.5, 0.5, 0.5]
