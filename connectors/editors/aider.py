"""aider's chat history: `.aider.chat.history.md`, a Markdown file to which each start of aider adds. A record is a session.

`#### ` is the user, `> ` the program, all else the model's answer. Edits are blocks in the answer; what became of them, and
which commands ran, the program's lines tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.editors.aider_edits import Outcome, by_file, edits_in, may_edit, outcome
from logforge.connectors.editors.aider_lines import Line, Said, Session, sessions, spoken
from logforge.connectors.episodes import Call, EpisodeBuilder, bad_part, close, content_id
from logforge.connectors.records import Head, NotJson, Source, canonical, loads
from logforge.schemas import Ending, Episode, Reading, Reject, Skip

_HEADING = re.compile(rb"^# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$", re.MULTILINE)
_MODEL = re.compile(r"(?:Main model|Models?): (\S+?)(?:,| with\b.*|$)")
_USAGE = re.compile(
    r"Tokens: (\S{1,18}) sent,(?: .{0,80})? (\S{1,18}) received\.(?: Cost: \$(\d{1,9}\.\d{1,9}) message\b.*)?"
)
_TALK = re.compile(r"/(?:ask|code|architect|context|help)\s+\S")
"""Commands whose words go to the model."""
_BLANK = "<blank>"
_CUT = ("^C", "KeyboardInterrupt", "has hit a token limit")


class Aider:
    """Sessions of aider."""

    name = "aider"
    version = 1
    record = "one session"
    fills = ("tokens", "cost")

    def sniff(self, head: Head) -> float:
        """Text with the heading that aider writes when it starts."""
        first = head.data.lstrip(b"\xef\xbb\xbf \t\r\n")
        return 0.95 if head.container == "text" and _HEADING.match(first) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per session."""
        found, torn = sessions(source.content())
        if not found and torn is not None:
            yield _reject(source.label, torn.number, "no session of aider", torn.text or "")
        for session in found:
            yield from _read(session, source.label, torn if session is found[-1] else None)


def _read(session: Session, label: str, torn: Line | None) -> Iterator[Reading]:
    where = f"{label}:{session.line}"
    if session.started is None:
        yield _reject(label, session.line, "text above the first session", session.lines[0].text or "")
    elif session.bad is not None:
        yield Reject(locator=where, reason="its text is not UTF-8", rule="malformed_record")
    elif session.stripped:
        reason = "the blanks at the end of aider's own lines are gone, so that headings in answers look like the user's words"
        yield _reject(label, session.line, reason, "")
    elif session.is_empty and torn is None:
        yield Skip(reason="empty_conversation")
    else:
        run = _Run(session, label, torn)
        yield from close(run.builder, run.episode())


def _reject(label: str, line: int, reason: str, text: str) -> Reject:
    return Reject(locator=f"{label}:{line}", reason=reason, rule="not_a_conversation", excerpt=text[:200])


class _Run:
    """A session as an episode."""

    def __init__(self, session: Session, label: str, torn: Line | None) -> None:
        self.session, self.label, self.torn = session, label, torn
        self.builder = EpisodeBuilder()
        self.said = spoken(session.lines)
        self.model: str | None = None
        self.first_model: str | None = None
        self.banner: str | None = None
        self.task: str | None = None
        self.state: tuple[Ending, str] = ("truncated", "the log stops before the agent's answer")
        for index, said in enumerate(self.said):
            follows = self.said[index + 1] if index + 1 < len(self.said) else None
            self._take(said, follows if follows is not None and follows.speaker == "program" else None)
        if torn is not None:
            self.state = ("truncated", "the log is cut off")
            part = bad_part(
                f"{label}:{torn.number}",
                "the log is cut off in this line",
                "malformed_record",
                torn.text or "",
            )
            self.builder.rejects.append(part)

    def episode(self) -> Episode:
        """The session."""
        told = {"started": self.session.started, "program": self.banner}
        return self.builder.finish(
            id=content_id(Aider.name, [self.session.started, [[s.speaker, s.text] for s in self.said]]),
            format=Aider.name,
            locator=f"{self.label}:{self.session.line}",
            ending=self.state[0],
            ending_reason=self.state[1],
            task=self.task,
            model=self.first_model,
            policy_id=self.first_model,
            metadata=canonical({key: value for key, value in told.items() if value}),
        )

    def _take(self, said: Said, after: Said | None) -> None:
        if not said.words:
            return
        where = f"{self.label}:{said.words[0].number}"
        if said.speaker == "user":
            self._user(said.text, where)
        elif said.speaker == "program":
            self._program(said, where)
        else:
            self._answer(said, where, after)

    def _user(self, text: str, where: str) -> None:
        self.state = ("truncated", "the log stops before the agent's answer")
        if text == _BLANK:
            self.builder.message("system", text, where)  # the program's word for no words
            return
        self.builder.message("user", text, where)
        if self.task is None and self.first_model is None and not self.builder.last_action:
            self.task = text if not text.startswith("/") or _TALK.match(text) else None

    def _program(self, said: Said, where: str) -> None:
        for line in said.lines:
            if (named := _MODEL.fullmatch((line.text or "").strip())) is not None:
                self.model = named[1]
        if not self.builder.messages:
            self.banner = said.text if self.banner is None else f"{self.banner}\n{said.text}"
            return
        self.builder.message("system", said.text, where)

    def _answer(self, said: Said, where: str, after: Said | None) -> None:
        text, did = said.text, outcome(after)
        more = {"model": self.model, **_usage(after)}
        self.first_model = self.first_model or self.model
        calls = _calls(text, did, self.label, said.words[0].number)
        if calls is None:
            self.builder.unparsed(text, where, **more)
        else:
            self.builder.turn(text, calls, where, **more)
            self._results(calls, did)
        self.state = _state(after, did)

    def _results(self, calls: list[Call], did: Outcome) -> None:
        """The program tells of files; where it is silent of one, what it says of the others may not be all."""
        paths = [call.arguments["path"] for call in calls if call.name == "edit"]
        if not all(path in did.files for path in paths):
            return
        for path in paths:
            status, line = did.files[path]
            self.builder.result(
                None, (line.text or "").strip(), f"{self.label}:{line.number}", name="edit", status=status
            )


def _calls(text: str, did: Outcome, label: str, line: int) -> list[Call] | None:
    """The calls of an answer that begins in a line; None when it has some that cannot be read for certain."""
    edits = edits_in(text)
    files, known = by_file(edits or []), did.files.keys()
    failed = any(told.status == "error" for told in did.files.values())
    if edits is None or (did.malformed and not failed) or _is_object(text):
        return None
    if known - files.keys() or (not failed and files.keys() - known) or (may_edit(text) and not known):
        return None
    if not all((command.text or "") in text for command in did.commands):
        return None
    calls = []
    for path, blocks in files.items():
        told = [{"search": block.search, "replace": block.replace} for block in blocks]
        calls.append(Call("edit", {"path": path, "edits": told}, None, f"{label}:{line + blocks[0].line}"))
    ran = ((command.text, f"{label}:{command.number}") for command in did.commands)
    return calls + [Call("bash", {"command": command}, None, place) for command, place in ran]


def _is_object(text: str) -> bool:
    """Arguments of a function call, which aider writes down as JSON without the function's name."""
    if not text.startswith("{"):
        return False
    try:
        return isinstance(loads(text), dict)
    except NotJson:
        return False


def _usage(after: Said | None) -> dict[str, Any]:
    """Tokens and cost of an answer. Rounded tokens (`2.4k`) are not known to the last one."""
    for line in after.lines if after is not None else ():
        if (told := _USAGE.fullmatch((line.text or "").strip())) is not None:
            found: dict[str, Any] = {
                key: int(number)
                for key, number in (("tokens_in", told[1]), ("tokens_out", told[2]))
                if number.isascii() and number.isdigit()
            }
            return found | ({"cost_usd": float(told[3])} if told[3] else {})
    return {}


def _state(after: Said | None, did: Outcome) -> tuple[Ending, str]:
    lines = [(line.text or "").strip() for line in after.lines] if after is not None else []
    if any(mark in text for text in lines for mark in _CUT):
        return "truncated", "the answer was interrupted"
    if did.malformed:
        return "truncated", "the log stops after edits that failed"
    return "terminal", "end of conversation"
