"""The worlds as environments of Gymnasium: one episode at a time, with text, and many at once, with structured observations.

The classes stand on their own; `gym_env` and `vector_env` add Gymnasium's base classes, so that nothing here needs it installed.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from logforge.connectors.episodes import asks_user
from logforge.core import need
from logforge.envs.catalogue import make
from logforge.envs.episodes import Rollout
from logforge.envs.wording import Script, as_episode, script, transcript, turn
from logforge.envs.world import COINS, RUNNING, Bools, Features, Floats, World
from logforge.schemas import CLARIFY, RESPOND, Episode

Observation = dict[str, Any]
"""`text`: what was said since the last action, `features`: the structured observation."""
_TEXT = 2000
"""No observation's text is longer."""


class ToolEnv:
    """One episode at a time. Actions are numbers (see World.actions), or text for `act`."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}
    render_mode: str | None = "ansi"

    def __init__(self, world: World, held_out: bool = False) -> None:
        self.world, self.held_out = world, held_out
        self._np_random = np.random.default_rng()
        self._begin(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new episode; a seed starts the random numbers anew."""
        if seed is not None:
            self._np_random = np.random.default_rng(seed)
        self._begin(int(self._np_random.integers(2**31)))
        return self._observe(transcript(self._run, self._script, 0, 0)), self._info()

    def _begin(self, seed: int) -> None:
        begin = self.world.reset(np.array([np.random.default_rng([seed, 0]).random()]))
        self._run = Rollout.fresh(self.world, begin)
        self._script: Script = script(self.world.name, 1, seed, self.held_out)
        self._step = 0

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action by its number; a number that is none of them is a tool that does not exist."""
        acts = np.array([int(action)])
        if not 0 <= acts[0] < len(self.world.actions):
            acts[0] = len(self.world.actions)
        run, step = self._run, self._step
        moved = self.world.step(run.states[:, step], acts, self._np_random.random((1, COINS)))
        run.actions[0, step], run.codes[0, step], run.states[0, step + 1] = (
            acts[0],
            moved.codes[0],
            moved.states[0],
        )
        self._step += 1
        words, picks = self._script.wording, self._script.picks[0, step]
        said = turn(run, words, int(self._script.scenarios[0]), int(acts[0]), moved.codes[0], picks, step)
        ended = bool(moved.outcome[0] != RUNNING)
        return self._observe(said[1:]), float(moved.rewards[0]), ended, bool(moved.truncated[0]), self._info()

    def act(self, text: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action by its name; another single word is a tool that does not exist, and a sentence is said to the user:
        it asks (clarify) or tells (respond)."""
        names, words = self.world.actions, text.split()
        if len(words) == 1:
            return self.step(names.index(words[0]) if words[0] in names else len(names))
        return self.step(names.index(CLARIFY if asks_user(text) else RESPOND))

    def render(self) -> str:
        """The dialogue so far, a line for each message."""
        messages = transcript(self._run, self._script, 0)
        return "\n".join(
            f"{m['role']}: {m['content'] or m['tool_calls'][0]['function']['name']}" for m in messages
        )

    def episode(self) -> Episode:
        """The dialogue so far, as ingest reads it from a log: what StateBuilder takes."""
        return as_episode(self.world, transcript(self._run, self._script, 0))

    def close(self) -> None:
        """There is nothing to close."""

    def _observe(self, said: list[dict[str, Any]]) -> Observation:
        text = "\n".join(f"{message['role']}: {message['content']}" for message in said)
        return {"text": text, "features": self.world.features(self._run.states[:, self._step])[0]}

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(len(self.world.actions), np.int8)}


class ToolVectorEnv:
    """n episodes at once, structured observations alone. An episode that is over begins anew at the next step, whose action
    is not taken (Gymnasium's "next step" autoreset)."""

    def __init__(self, world: World, num_envs: int) -> None:
        self.world, self.num_envs = world, num_envs
        self._np_random = np.random.default_rng()
        self._over = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """New episodes everywhere."""
        if seed is not None:
            self._np_random = np.random.default_rng(seed)
        self._states = self.world.reset(self._np_random.random(self.num_envs))
        self._over[:] = False
        return self.world.features(self._states), {}

    def step(self, actions: NDArray[np.integer]) -> tuple[Features, Floats, Bools, Bools, dict[str, Any]]:
        """Observations (n, features), rewards, terminated and truncated (n)."""
        fresh = self._over
        moved = self.world.step(
            self._states, np.asarray(actions), self._np_random.random((self.num_envs, COINS))
        )
        states, ended, cut = moved.states, moved.outcome != RUNNING, moved.truncated
        rewards = np.where(fresh, 0.0, moved.rewards)
        if fresh.any():
            states[fresh] = self.world.reset(self._np_random.random(int(fresh.sum())))
            ended, cut = ended & ~fresh, cut & ~fresh
        self._states, self._over = states, ended | cut
        return self.world.features(states), rewards, ended, cut, {}

    def close(self, **extra: Any) -> None:
        """There is nothing to close."""


def gym_env(name: str, held_out: bool = False, **knobs: Any) -> Any:
    """The world as a gymnasium.Env; `knobs` are fields of Difficulty. Raises MissingExtra where Gymnasium is not installed."""
    gymnasium = need("gymnasium", "train")
    env = _with_base(ToolEnv, gymnasium.Env)(make(name, **knobs), held_out)
    spaces = gymnasium.spaces
    env.action_space = spaces.Discrete(len(env.world.actions))
    env.observation_space = spaces.Dict(
        {
            "features": _box(spaces, env.world),
            "text": spaces.Text(_TEXT, min_length=0, charset=_charset(env.world)),
        }
    )
    return env


def vector_env(name: str, num_envs: int, **knobs: Any) -> Any:
    """The same as a gymnasium.vector.VectorEnv of `num_envs` episodes, without text."""
    gymnasium = need("gymnasium", "train")
    vector = need("gymnasium.vector", "train")
    env = _with_base(ToolVectorEnv, vector.VectorEnv)(make(name, **knobs), num_envs)
    env.single_action_space = gymnasium.spaces.Discrete(len(env.world.actions))
    env.single_observation_space = _box(gymnasium.spaces, env.world)
    env.action_space = vector.utils.batch_space(env.single_action_space, num_envs)
    env.observation_space = vector.utils.batch_space(env.single_observation_space, num_envs)
    return env


@cache
def _with_base(ours: type, base: type) -> Any:
    return type(ours.__name__, (ours, base), {"__doc__": ours.__doc__, "__module__": ours.__module__})


def _box(spaces: ModuleType, world: World) -> Any:
    return spaces.Box(0.0, 1.0, (len(world.feature_names),), np.float32)


def _charset(world: World) -> str:
    printable = {chr(code) for code in range(32, 127)}
    texts = [text for held in (False, True) for text in script(world.name, 1, 0, held).wording.all()]
    return "".join(sorted(printable.union({"\n"}, *texts)))
