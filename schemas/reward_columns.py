"""The columns that a reward's expressions may use, with when each of them is known."""

from __future__ import annotations

from typing import Literal, NamedTuple

Known = Literal["before", "choice", "after", "end"]
"""When a column of a step is known: before the decision, with it, with the next observation, or when the episode is over."""


class Input(NamedTuple):
    """A column an expression may use."""

    name: str
    type: str
    known: Known
    meaning: str


def _inputs(text: str) -> tuple[Input, ...]:
    rows = (line.split(None, 3) for line in text.strip().splitlines())
    return tuple(Input(name, kind, known, meaning) for name, kind, known, meaning in rows)  # type: ignore[arg-type]


COLUMNS = _inputs("""
    step                INTEGER  before  the step's number in its episode, from 0
    kind                VARCHAR  choice  `tool`, `respond` or `clarify`
    action              VARCHAR  choice  the tool's name, `respond` or `clarify`
    arguments           VARCHAR  choice  canonical JSON text of the call's arguments; the raw text when they are invalid
    arguments_status    VARCHAR  choice  `ok`, `repaired` or `invalid`
    action_valid        BOOLEAN  choice  false when the tool was not among those offered
    said                VARCHAR  choice  the text of the turn; empty where the turn has none
    thought             VARCHAR  choice  the turn's reasoning, kept apart from its text; empty where none is logged
    tokens              BIGINT   choice  tokens read and written in the turn, on its first step (0 on the others); null where none are logged
    cost                DOUBLE   choice  what the turn cost in US dollars, on its first step (0 on the others); null where it is not logged
    result              VARCHAR  after   what the tool answered; empty text where the step has no tool, null where no answer was logged
    result_status       VARCHAR  after   `ok`, `error`, `empty`, `timeout`, `refused` or `missing`; `none` where the step has no tool
    error_class         VARCHAR  after   typed error, or `soft_refusal`; `none` where the step has no tool or neither, null where the log does not tell
    latency_s           DOUBLE   after   seconds from call to result; null where the log does not tell
    user_reply          VARCHAR  after   what the user said between this turn and the next one; empty where nothing was said
    logged_reward       DOUBLE   after   the per-step reward the log carries; null where it carries none
    prev_action         VARCHAR  before  action of the step before; `none` at step 0
    prev_arguments      VARCHAR  before  arguments of the step before; `none` at step 0
    prev_result_status  VARCHAR  before  result_status of the step before; `none` at step 0
    prev_error_class    VARCHAR  before  error_class of the step before; `none` at step 0
    repeats             BIGINT   choice  earlier steps of the episode with the same action and arguments
    errors_so_far       BIGINT   before  earlier steps of the episode whose result_status is `error` or `timeout`
    calls_so_far        BIGINT   before  earlier steps of the episode that call a tool
    clarifies_so_far    BIGINT   before  earlier steps of the episode that ask the user
    tokens_so_far       BIGINT   before  tokens of the earlier steps; unlogged ones count 0
    cost_so_far         DOUBLE   before  cost of the earlier steps; unlogged ones count 0
    invalid_tool        BOOLEAN  choice  detector: the step calls a tool that was not offered
    runtime_error       BOOLEAN  after   detector: the call failed or timed out (`error_class` types it)
    loop                BOOLEAN  choice  detector: the same call (tool and arguments) is among the last `loop.within` steps
    no_progress         BOOLEAN  after   detector: this and the calls before it, `no_progress.calls` in all, brought nothing new: failed, empty, or a result seen before
    clarify             BOOLEAN  choice  detector: the step asks the user
    done_so_far         DOUBLE   before  detector: share of `completeness.tools` and `.slots` met before this step
    completeness        DOUBLE   after   detector: share of `completeness.tools` that worked and `.slots` that were filled, this step included
    came_back           BOOLEAN  end     detector: the same user began another episode within `came_back.within_s` after this one; null without user or times
    premature_close     BOOLEAN  end     detector: the last step of an episode that ended though its last call failed or none ever worked, though completeness is below 1, or though the user came back
    is_last             BOOLEAN  end     true on the episode's last step
    success             BOOLEAN  end     the episode's logged outcome; null when there is none
    score               DOUBLE   end     the episode's logged final score; null when there is none
    format              VARCHAR  before  the connector that read the episode
    source_kind         VARCHAR  before  `agent_log`, `human_demo`, `random_exploration`, `synthetic` or `counterfactual`
    ending              VARCHAR  end     `terminal` or `truncated`
    ending_reason       VARCHAR  end     the evidence for it
    task_id             VARCHAR  before  the log's id of the task; null when it has none
    model               VARCHAR  before  the model's name; null when the log does not tell
    policy_id           VARCHAR  before  who decided; the step's own where it differs from the episode's
    n_steps             BIGINT   end     how many steps the episode has
""")
"""Every column an expression may use."""

KNOWN: dict[str, Known] = {column.name: column.known for column in COLUMNS}
"""When each column is known."""
