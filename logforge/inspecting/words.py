"""What the names and values of logs usually mean: who speaks, what is a call, which key holds what.

Words are evidence and no more: a value that is in none of these lists is told as unsure.
"""

from __future__ import annotations

import re

USER = frozenset(
    "user human customer client caller visitor guest patient student buyer requester inbound incoming enduser passenger"
    " shopper contact you tenant employee citizen asker".split()
)
ASSISTANT = frozenset(
    "assistant bot ai agent model gpt chatbot operator support representative outbound outgoing llm copilot advisor"
    " helper claude gemini va".split()
)
SYSTEM = frozenset("system developer sys instructions instruction preamble".split())
TOOL = frozenset("tool function api action plugin observation command fn invocation skill".split())
RESULT = frozenset(
    "result results response output outputs observation return returned reply end ended finished done completed out answer"
    " success returns".split()
)
CALL = frozenset(
    "call calls use request start started invoke invoked invocation input run requested execute".split()
)
NO_MESSAGE = frozenset(
    "heartbeat typing metric metrics debug ping presence joined left join leave opened closed status lifecycle read receipt"
    " session created meta metadata header trace telemetry connected disconnected feedback rating".split()
)
QUESTION = frozenset("req question prompt query request input ask asked utterance q instruction".split())
ANSWER = frozenset(
    "final res resp answer response reply output completion generation answered a replied".split()
)
NO_SPEECH = frozenset(
    "id ids uuid time timestamp at date ts created updated tokens token count length len model name lang language type score"
    " rating cost latency ms duration version hash url status code locale channel email index number format expected"
    " reference gold truth label source file path key intent category sentiment system ip phone mode level currency".split()
)

ROLE_KEYS = (
    "role",
    "speaker",
    "from",
    "sender",
    "author",
    "by",
    "who",
    "participant",
    "direction",
    "party",
    "actor",
    "type",
    "source",
    "kind",
    "event",
    "side",
)
CONTENT_KEYS = (
    "content",
    "text",
    "message",
    "body",
    "msg",
    "utterance",
    "value",
    "said",
    "transcript",
    "parts",
    "data",
    "payload",
)
THOUGHT_KEYS = (
    "thought",
    "thoughts",
    "reasoning",
    "thinking",
    "rationale",
    "scratchpad",
    "chain_of_thought",
    "reasoning_content",
)
NAME_KEYS = (
    "tool_name",
    "toolname",
    "function_name",
    "functionname",
    "tool",
    "function",
    "name",
    "fn",
    "func",
    "api",
    "method",
    "action",
    "command",
    "skill",
    "plugin",
    "action_name",
    "api_name",
)
ARGUMENT_KEYS = (
    "arguments",
    "args",
    "tool_input",
    "toolinput",
    "action_input",
    "input",
    "inputs",
    "parameters",
    "params",
    "kwargs",
    "with",
    "payload",
    "request",
    "tool_args",
    "function_args",
    "arguments_json",
    "body",
)
RESULT_KEYS = (
    "result",
    "ret",
    "output",
    "observation",
    "response",
    "tool_output",
    "tooloutput",
    "return",
    "returned",
    "return_value",
    "results",
    "outputs",
    "answer",
    "out",
    "content",
    "text",
    "data",
    "body",
    "value",
)
CALL_ID_KEYS = (
    "tool_call_id",
    "toolcallid",
    "call_id",
    "callid",
    "tool_use_id",
    "invocation_id",
    "ref",
    "id",
    "request_id",
    "correlation_id",
)
ERROR_KEYS = ("error", "is_error", "iserror", "failed", "err", "exception", "error_message")
CALLS_KEYS = frozenset(
    "tool_calls toolcalls calls tools_used tool_uses tooluses function_calls actions intermediate_steps invocations tool_call"
    " toolcall function_call call api_calls tool tools function used steps agent_thoughts executed does".split()
)
SESSION_KEYS = (
    "conversation_id",
    "session_id",
    "thread_id",
    "chat_id",
    "dialog_id",
    "dialogue_id",
    "episode_id",
    "run_id",
    "trace_id",
    "ticket_id",
    "case_id",
    "conversation",
    "session",
    "thread",
    "chat",
    "dialog",
    "dialogue",
    "run",
    "ticket",
    "case",
    "room_id",
    "room",
    "channel_id",
    "interaction_id",
    "execution_id",
    "conv_id",
    "conv",
    "sid",
    "episode",
    "call_sid",
    "trace",
)
ID_KEYS = (*SESSION_KEYS, "id", "uuid", "uid", "key", "_id")
ORDER_KEYS = (
    "seq",
    "sequence",
    "index",
    "idx",
    "turn_index",
    "message_index",
    "position",
    "pos",
    "order",
    "n",
    "no",
    "num",
    "number",
    "turn",
    "turn_number",
    "step",
    "line",
    "ordinal",
    "message_number",
    "turn_id",
    "turn_no",
)
TIME_KEYS = (
    "created_at",
    "createdat",
    "timestamp",
    "time",
    "ts",
    "sent_at",
    "date",
    "datetime",
    "created",
    "at",
    "when",
    "started_at",
    "startedat",
    "create_time",
    "createtime",
    "event_time",
    "logged_at",
    "start_time",
    "starttime",
)
START_KEYS = (
    "started_at",
    "startedat",
    "start_time",
    "starttime",
    "started",
    "created_at",
    "createdat",
    "start",
    "opened_at",
    "begin",
)
END_KEYS = (
    "ended_at",
    "endedat",
    "end_time",
    "endtime",
    "ended",
    "finished_at",
    "finishedat",
    "closed_at",
    "stopped_at",
    "stoppedat",
    "finish",
    "end",
)
MODEL_KEYS = ("model", "model_name", "model_id", "modelname", "llm", "engine", "llm_model")
USER_KEYS = ("user_id", "userid", "customer_id", "customerid", "client_id", "user")
SYSTEM_KEYS = (
    "system",
    "system_prompt",
    "systemprompt",
    "system_message",
    "instructions",
    "preamble",
    "pre_prompt",
)
SUCCESS_KEYS = (
    "success",
    "successful",
    "resolved",
    "is_resolved",
    "isresolved",
    "solved",
    "is_solved",
    "passed",
    "task_success",
    "goal_achieved",
    "outcome",
    "resolution",
    "verdict",
    "issue_resolved",
    "succeeded",
    "result",
    "status",
    "state",
)
SCORE_KEYS = ("score", "reward", "final_score", "total_reward")
REFERENCE_KEYS = (
    "reference",
    "reference_answer",
    "expected",
    "expected_answer",
    "expected_output",
    "gold",
    "gold_answer",
    "ground_truth",
    "groundtruth",
)
TRUE = frozenset("true yes 1 1.0 solved resolved success successful succeeded pass passed achieved".split())
FALSE = frozenset(
    "false no 0 0.0 unsolved unresolved failure failed fail not_solved not_resolved unsuccessful notachieved".split()
)
_CALL_WORDS = frozenset(
    {"tool", "tools", "call", "calls", "function", "functions", "action", "actions", "invocations", "steps"}
)
TURN_WORDS = frozenset(
    "turns turn messages message conversation chat history exchanges exchange dialog dialogue log events rounds round steps"
    " transcript utterances entries interactions thread".split()
)
RUN_WORDS = frozenset(
    "conversations sessions threads chats dialogs dialogues runs episodes cases tickets records items data rows results"
    " traces interactions executions examples samples calls".split()
)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words_of(text: str) -> list[str]:
    """The words of a name, in lower case: `toolCallId`, `tool-call-id` and `TOOL_CALL_ID` are the same."""
    return [word.lower() for word in _WORD.findall(text)]


def plain_name(text: str) -> str:
    """A name in one spelling: `tool_call_id`."""
    return "_".join(words_of(text)) or text.lower()


def rank_in(name: str, known: tuple[str, ...]) -> int | None:
    """The place of a name among the known ones, the best first; None when it is none of them."""
    spelled = plain_name(name)
    for candidate in (spelled, spelled.replace("_", "")):
        if candidate in known:
            return known.index(candidate)
    return None


def said_by(value: str) -> str | None:
    """Who speaks where a log says so in this word: a role, `call` for an agent's call of a tool, `skip` for no message."""
    words = words_of(value)
    held = set(words)
    if not words:
        return None
    if held == {"api", "message"}:  # the answer of an API to a user's message
        return "assistant"
    if held & TOOL or "observation" in held:
        if held <= {"tool", "function", "observation", "tools"} or held & RESULT:
            return "tool"
        return "call" if held & CALL or held <= TOOL else None
    if held & SYSTEM and not held & (USER | ASSISTANT | NO_MESSAGE):
        return "system"
    sides = [role for role, known in (("user", USER), ("assistant", ASSISTANT)) if held & known]
    if len(sides) == 1 and not held & NO_MESSAGE:
        return sides[0]
    if not sides and held & NO_MESSAGE:
        return "skip"
    if not sides and len(words) <= 2:
        asks = [role for role, known in (("user", QUESTION), ("assistant", ANSWER)) if held & known]
        return asks[0] if len(asks) == 1 else None
    return None


def is_calls_key(name: str) -> bool:
    """Whether a key is one under which calls stand."""
    spelled = plain_name(name)
    return (
        spelled in CALLS_KEYS
        or spelled.replace("_", "") in CALLS_KEYS
        or bool({*spelled.split("_")} & _CALL_WORDS)
    )


def side_of(names: list[str]) -> tuple[str, int] | None:
    """Which side of a talk keys lead to, `user` or `assistant`, and how surely: 3 for who, 2 for question and answer."""
    last = set(words_of(names[-1])) if names else set()
    held = {word for name in names for word in words_of(name)}
    if last & (NO_SPEECH - ({"model"} if last & ANSWER else set())) or not held:
        return None
    asks, answers = bool(held & QUESTION), bool(held & ANSWER)
    users, agents = bool(held & USER), bool(held & ASSISTANT)
    if (users or agents) and users != agents:
        if (users and answers and not asks) or (agents and asks and not answers):
            return None
        return ("user" if users else "assistant"), 3
    if asks != answers:
        return ("user" if asks else "assistant"), 2
    return side_of(names[:1]) if len(names) > 1 and asks and answers else None
