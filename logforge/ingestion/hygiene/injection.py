"""Texts that give the agent orders it should not take from where they stand: tagged, never executed, never changed.

A user's or a tool's text gets flags (`messages.flags`); a system prompt may say what it likes. Patterns are a net with known
holes: they find what people copy from one another, not what somebody writes with this page open.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from logforge.ingestion.hygiene.secrets import holds, lower, windows

ROLES = frozenset({"user", "tool"})
"""Whose texts are looked at."""

PREFIX = "injection:"
"""With what the flags of this module begin."""

_MARGIN = 300
"""No pattern looks further than so many characters from the first of its hints."""
_SPACE = r"[\s*_>\"'-]{1,6}"
_WORD = r"[^\W_]{1,40}"  # without what may be a space: a line of underscores could be cut up in too many ways
_ORDERS = r"(?:instructions?|prompts?|directions?|directives?|guidelines?|rules?|commands?|orders|context|messages?|programming|training|polic(?:y|ies)|restrictions?|constraints?|guardrails?)"
_DROP = r"(?:ignore|disregard|forget|override|bypass|neglect|discard|skip|overlook)"


_PLURAL = r"(?:instructions|prompts?|directions|directives|guidelines|rules|orders|commands)"
_FORMER = r"(?:bisherig|vorherig|vorig|vorangegangen|vorstehend|obig|früher|ursprünglich)\w*"
_BEFORE_FR = r"(?:précédent\w*|ci-dessus|antérieur\w*|préalables|initiales)"
_BEFORE_ES = r"(?:anterior\w*|previ[ao]s|precedent[ie]|de\s+arriba|iniciales|iniziali|acima)"
_ORDERS_ES = r"(?:instruc(?:ciones|cion|ción)|instruções|istruzioni|indicaciones|indicazioni|órdenes|ordenes|ordens|ordini|reglas|regras|regole|directrices|diretrizes)"
_READER = r"(?:ai|a\.i\.|llms?|(?:ai\s+)?assistants?|(?:ai\s+)?agents?|chatgpt|gpt-?\d?|claude|gemini|copilot|language\s+models?)"


class Pattern(NamedTuple):
    """What the flag `injection:NAME` looks like. `hints` are groups of words (in lower case) of each of which a text must
    hold one, which is cheap to see, before `regex` is tried."""

    name: str
    hints: tuple[tuple[str, ...], ...]
    regex: re.Pattern[str]


def _pattern(name: str, hints: str, regex: str) -> Pattern:
    groups = tuple(tuple(word.replace("~", " ") for word in group.split()) for group in hints.split(" & "))
    return Pattern(name, groups, re.compile(regex, re.IGNORECASE | re.MULTILINE))


_DROP_HINTS = "ignore disregard forget overrid override bypass neglect discard skip overlook"
_ORDER_HINTS = "instruction prompt direction directive guideline rule command order context message programming training policy policies restriction constraint guardrail"
_SECRET_HINTS = "password passcode api~key api_key api-key apikey credential secret access~token private~key ssh~key ssh-key conversation chat~history system~prompt environment~variable env~var"

PATTERNS = (
    _pattern(
        "ignore_previous",
        f"{_DROP_HINTS} & {_ORDER_HINTS}",
        rf"\b{_DROP}\b(?:{_SPACE}(?:all|any|every|everything|each|of|the|these|those|about|completely|entirely|what|which)){{0,4}}"
        rf"{_SPACE}(?:your{_SPACE})?(?:previous|prior|preceding|above|earlier|foregoing|former|initial|original|existing|system|developer)"
        rf"(?:{_SPACE}{_WORD}){{0,3}}?{_SPACE}{_ORDERS}\b",
    ),
    _pattern(
        "ignore_previous",
        f"{_DROP_HINTS} & your & {_ORDER_HINTS}",
        rf"\b{_DROP}\b{_SPACE}(?:all{_SPACE})?(?:of{_SPACE})?your{_SPACE}(?:{_WORD}{_SPACE})?{_ORDERS}\b",
    ),
    _pattern(
        "ignore_previous",
        f"{_DROP_HINTS} & everything all anything & said told above before written instructed learned",
        rf"\b{_DROP}\b{_SPACE}(?:everything|all|anything){_SPACE}(?:(?:that|which){_SPACE})?(?:(?:i|we|you|they){_SPACE})?"
        rf"(?:(?:was|were|have|been|just|had|ve){_SPACE}){{0,3}}(?:said|told|above|before|written|instructed|learned)\b",
    ),
    _pattern(
        "ignore_previous",
        "not~follow n't~follow & previous prior above earlier original system",
        r"\b(?:do\s+not|don['’]t)\s+follow\s+(?:any\s+|the\s+|your\s+){0,2}(?:previous|prior|above|earlier|original|system)\s+\w+",
    ),
    _pattern(
        "ignore_previous",
        "new updated real actual true & instruction",
        r"\b(?:new|updated|real|actual|true)\s+(?:system\s+)?instructions?\s*(?:follow\b|below\b|begin\b|are\s*:|for\s+the\s+(?:ai|assistant|agent)|:\s*(?:ignore|disregard|you|send|forget|do))",
    ),
    _pattern(
        "ignore_previous",
        "stop~ & instead",
        r"\bstop\s+(?:what\s+you\s+are|your\s+current)\s+\w+\s+and\s+(?:instead|do|execute|run|send)\b",
    ),
    _pattern(
        "ignore_previous",
        "before~you & following",
        r"\bbefore\s+you\s+(?:can\s+)?(?:solve|continue|complete|finish|proceed|begin|do|start)\b[^.\n]{0,120}?\b(?:please\s+)?"
        r"(?:do|execute|perform|follow|complete)\s+the\s+following",
    ),
    _pattern(
        "ignore_previous",
        f"{_DROP_HINTS} & {_ORDER_HINTS} & above before previous earlier given preced",
        rf"\b{_DROP}\b(?:{_SPACE}(?:all|any|every|of|the|these|those|my|your)){{0,4}}{_SPACE}{_PLURAL}{_SPACE}"
        rf"(?:(?:that|which|you|were|are|was|have|had|been|stated|listed|written|provided|received|given){_SPACE}){{0,5}}"
        r"(?:above|before|previously|earlier|preceding|(?<=you were )given|(?<=have been )given)\b",
    ),
    _pattern(
        "ignore_previous",
        "ignorier vergiss vergesst missacht beachte & anweisung instruktion befehl regeln vorgaben anleitung",
        rf"\b(?:ignorier(?:en?|t)?|vergiss|vergesst|missachten?|beachten?)\b[^.\n]{{0,40}}?\b{_FORMER}[^.\n]{{0,30}}?\b(?:anweisung|instruktion|befehl|regeln|vorgaben|anleitung)\w*"
        r"|\b(?:ignorier(?:en?|t)?|vergiss|vergesst|missachten?)\s+(?:alle|deine|ihre|sämtliche)\s+(?:anweisung|instruktion|befehl|regeln|vorgaben)\w*",
    ),
    _pattern(
        "ignore_previous",
        "ignore oublie compte & instruction consigne directive règle & précédent ci-dessus antérieur préalable initiale",
        rf"\b(?:ignore[zr]?|oublie[zr]?|ne\s+(?:tiens|tenez)\s+(?:pas|plus)\s+compte\s+d\w+)\b[^.\n]{{0,40}}?\b(?:instructions|consignes|directives|règles)\b[^.\n]{{0,20}}?\b{_BEFORE_FR}",
    ),
    _pattern(
        "ignore_previous",
        "ignor olvid omit esqueça dimentica caso~omiso & instruc istruzioni instruções indica órdenes ordenes ordens ordini reglas regras regole direct diretrizes",
        rf"\b(?:ignor[aeo]r?|olvid[ae]r?|omit[ae]|esqueça|dimentica|caso\s+omiso\s+(?:a|de))\b[^.\n]{{0,30}}?\b(?:{_ORDERS_ES}[^.\n]{{0,20}}?\b{_BEFORE_ES}|{_BEFORE_ES}\s+{_ORDERS_ES})\b",
    ),
    _pattern(
        "ignore_previous",
        "忽略 无视 無視 忽視 忘记 忘掉 不要理会 忘れ",
        r"(?:忽略|无视|無視|忽視|忘记|忘掉|不要理会)[^。\n]{0,8}(?:之前|以上|前面|先前|上面|上述|此前|以前|所有)[^。\n]{0,8}(?:指令|指示|提示|命令|规则|規則|说明|說明|设定|設定)"
        r"|(?:これまで|以前|上記|前|上)の[^。\n]{0,8}(?:指示|命令|プロンプト|ルール)[^。\n]{0,6}(?:無視|忘れ)",
    ),
    _pattern(
        "ignore_previous",
        "ignoreall ignorepre ignoretheabove ignoreyour disregardall disregardpre",
        r"(?:ignore|disregard)(?:all|any)?(?:of)?(?:the|your)?(?:previous|prior|above)(?:system)?(?:instructions|prompts|rules)",
    ),
    _pattern(
        "role_marker",
        "<!--",
        rf"<!--\s{{0,20}}(?:(?:hidden\s{{1,20}})?(?:note|message|instructions?|attention)\s{{0,20}}(?:to|for|:)?\s{{0,20}})?(?:dear\s+|hey\s+|the\s+|any\s+){{0,2}}{_READER}\b[^>\n]{{0,40}}?[:,]\s*[^\s>-]",
    ),
    _pattern(
        "role_marker",
        "<|im_ <|system <|user <|assistant <|start_ <|end <|eot <|begin [inst [/inst [sys] [/sys] [system] [/system] <<sys <</sys",
        r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|end_header_id|eot_id|begin_of_text|endofprompt)\|>"
        r"|\[/?(?:INST|SYS|SYSTEM)\]|<</?SYS>>",
    ),
    _pattern(
        "role_marker",
        "system: system~message system~prompt system~override system~note system~instruction developer: developer~m <system </system <developer </developer admin~message admin~prompt admin~instruction",
        r"^[ \t]*(?:#{1,4}\s*)?(?:system|developer)\s{0,20}(?:message|prompt|override|note|instruction)?\s{0,20}:\s*(?:you\b|ignore\b|disregard\b|new\b|from\s+now|the\s+user\b)"
        r"|</?(?:system|system[_-]prompt|system[_-]message|developer[_-]message)>\s*(?:you|ignore|disregard|new|from\s+now)\b"
        r"|^[ \t]*(?:\*{2}|={3,}|-{3,})?\s*(?:begin|end|start)\s+(?:of\s+)?(?:system|developer|admin)\s+(?:prompt|message|instructions?)",
    ),
    _pattern(
        "role_marker",
        "<important <information <instruction <admin <secret",
        r"<(?:important|information|instructions?|admin|secret)>\s*(?:!+\s*)?(?:this\s+is\s+an\s+important|important|before|when|you\s+must|ignore|do\s+not|if\s+you)",
    ),
    _pattern(
        "new_role",
        "you~are~now you're~now you’re~now you~are~no~longer",
        r"\byou(?:\s+are|['’]re)\s+(?:now\s+(?:(?:an?|in)\s+)?|no\s+longer\s+)(?:dan\b|jailbroken|unrestricted|uncensored|unfiltered|evil|free\s+(?:of|from)|developer\s+mode|dev\s+mode"
        r"|god\s+mode|debug\s+mode|admin\w*\s+mode|bound|restricted|a\s+different|an?\s+ai\s+(?:without|with\s+no)|ai\s+(?:without|with\s+no))",
    ),
    _pattern(
        "new_role",
        "developer~mode dev~mode god~mode jailb dan~mode debug~mode unrestricted~mode admin~mode anything~now",
        r"\b(?:enable|enter|activate|switch\s+to)\s+(?:developer|dev|god|jailbreak|dan|unrestricted|admin)\s+mode\b"
        r"|\bdo\s+anything\s+now\b|\bjailbreak\s+(?:mode|prompt)\b",
    ),
    _pattern(
        "new_role",
        "pretend act~as act~like behave roleplay respond & without no~ free",
        r"(?<!the )\b(?:pretend|act|behave|roleplay|respond)\s+(?:to\s+be|as|like|as\s+if\s+you)\b[^.\n]{0,60}\b(?:no|without(?:\s+any)?|free\s+(?:of|from))\s+"
        r"(?:ethical\s+|content\s+|safety\s+)?(?:restrictions?|rules|limitations?|filters?|guidelines?|guardrails?|content\s+polic\w+)",
    ),
    _pattern(
        "new_role",
        "from~now~on & you",
        r"\bfrom\s+now\s+on\b[^.\n]{0,40}\byou\s+(?:will|must|are|shall)\b[^.\n]{0,80}\b(?:unrestricted|obey|unfiltered|no\s+restrictions|only\s+follow|ignore)\b",
    ),
    _pattern(
        "prompt_leak",
        "system~prompt system~message developer~message instructions initial~prompt hidden~prompt secret~prompt original~prompt",
        r"\b(?:reveal|print|show|repeat|output|display|tell\s+me|give\s+me|write|leak|dump|disclose|recite|return)\b[^.\n]{0,40}?\byour\s+"
        r"(?:(?:full|entire|exact|hidden|secret|initial|original|complete|whole|above)\s+){0,3}(?:system|developer|hidden|initial|secret|original)\s+(?:prompt|message|instructions?)\b"
        r"|\bwhat\s+(?:is|are|was|were)\s+your\s+(?:system\s+prompt|(?:initial|original|hidden|secret)\s+instructions?)\b",
    ),
    _pattern(
        "prompt_leak",
        "repeat & above before",
        r"\brepeat\s+(?:everything|all(?:\s+the)?\s+(?:text|words)|the\s+(?:text|words))\s+(?:above|before)\b",
    ),
    _pattern(
        "exfiltration",
        f"{_SECRET_HINTS} & http @ attacker evil this following & send post upload forward email e-mail transmit exfiltrate leak copy submit",
        r"\b(?:send|post|upload|forward|e-?mail|transmit|exfiltrate|leak|copy|submit)\b[^.\n]{0,80}\b(?:passwords?(?!\s+reset)|passcodes?|api[\s_-]?keys?|credentials?|secrets?"
        r"|access\s+tokens?|private\s+keys?|ssh[\s-]keys?|conversation|chat\s+history|system\s+prompt|environment\s+variables|env\s+vars?)\b[^.\n]{0,60}?\bto\b[^\n]{0,30}"
        r"(?:https?://|\b[\w.+-]+@[\w-]+\.|\b(?:attacker|evil|this\s+(?:url|address|server|webhook)|the\s+following\s+(?:url|address|server|webhook)))",
    ),
    _pattern(
        "exfiltration",
        "![",
        r"!\[[^\]\n]{0,100}\]\(https?://[^\s)]{1,300}[?&](?:q|d|data|secret|token|key|leak|payload|info|content|text|msg|message|prompt|history|conversation|c)="
        r"(?-i:[A-Z][A-Z_]{3,}(?![\w.-]))",
    ),
    _pattern(
        "exfiltration",
        "![",
        r"!\[[^\]\n]{0,100}\]\(https?://[^\s)]{1,300}[?&][\w-]{1,100}=(?:\{|<|\[|%7b|\$\{?)",
    ),
    _pattern(
        "exfiltration",
        "curl wget & .env .ssh id_rsa .aws etc/passwd $(cat $(env $(printenv `cat `env",
        r"\b(?:curl|wget)\b[^\n]{0,200}(?:\$\((?:cat|env|printenv)|`(?:cat|env)|@~?/?(?:[\w./-]{0,200}/)?(?:\.env|\.ssh/|id_rsa|\.aws/|etc/passwd))",
    ),
    _pattern(
        "exfiltration",
        ".ssh/id_ .aws/credentials .env & send pass include append argument parameter sidenote",
        r"\b(?:cat|read|open)\b[^\n]{0,40}(?:~/\.ssh/id_\w+|~/\.aws/credentials|\.env\b)[^\n]{0,120}\b(?:send|pass|include|append|as\s+(?:the\s+)?(?:\w+\s+)?(?:argument|parameter|sidenote))\b",
    ),
    _pattern(
        "secrecy",
        "user & not n't never without & tell inform mention reveal notify alert let",
        r"\b(?:do\s+not|don['’]?t|never|without)\s+(?:ever\s+)?(?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|reveal(?:ing)?|notify(?:ing)?|alert(?:ing)?|let(?:ting)?)\b"
        r"[^.\n]{0,40}?\b(?:the\s+)?user\b[^.\n]{0,60}\b(?:this|that\s+you|about|know|these|instructions?|of\s+it)\b",
    ),
    _pattern(
        "secrecy",
        "mention reveal disclose & not n't never & user anyone human instruction message note",
        r"\b(?:do\s+not|don['’]?t|never)\s+(?:mention|reveal|disclose)\s+(?:this|these|that\s+you|the\s+above)\b[^.\n]{0,40}\b(?:to\s+(?:the\s+)?(?:user|anyone|human)|instructions?|message|note)\b",
    ),
    _pattern(
        "secrecy",
        "keep & secret~from hidden~from confidential~from",
        r"\bkeep\s+(?:this|these\s+instructions?|it)\s+(?:a\s+)?(?:secret|hidden|confidential)\s+from\s+(?:the\s+)?(?:user|human)",
    ),
)

HINTS = (
    *_DROP_HINTS.split(), "not follow", "n't follow", "instruction", "stop what", "stop your", "before you", "<|", "[inst", "[/inst",
    "[sys", "[/sys", "<<sys", "<</sys", "system:", "developer:", "system message", "system prompt", "system override", "system note",
    "system instruction", "developer m", "<system", "</system", "<developer", "</developer", "<important", "<information", "<admin",
    "<secret", "admin message", "admin prompt", "you are now", "you're now", "you’re now", "no longer", "dev mode", "god mode", "jailb",
    "dan mode", "unrestricted", "admin mode", "anything now", "pretend", "act as", "act like", "behave", "roleplay", "respond as", "respond like",
    "from now on", "initial prompt", "hidden prompt", "secret prompt", "original prompt", "repeat", *(word.replace("~", " ") for word in _SECRET_HINTS.split()),
    "ignorier", "vergiss", "vergesst", "missacht", "beachte", "oublie", "tiens", "tenez", "ignor", "olvid", "omit", "esque", "dimentica", "caso omiso",
    *(sign.join(word[:4]) for word in _DROP_HINTS.split() for sign in " ._-"),  # i g n o r e
    "忽略", "无视", "無視", "忽視", "忘记", "忘掉", "不要理会", "忘れ", "<!--", "![", "curl", "wget", ".ssh", ".aws", ".env", "mention", "reveal", "disclose", "the user", "hidden from",
)  # fmt: skip
"""A text with a flag holds one of these, in any case, unless its letters are of other shapes (SUSPECT): the cheap test that comes
first."""


def in_place(flags: Iterable[str], heard: bool) -> set[str]:
    """The flags that a text keeps where it stands: `heard`, as what a user or a tool says to the agent, all; elsewhere (thoughts,
    arguments, what others say) no injection."""
    return {flag for flag in flags if heard or not flag.startswith(PREFIX)}


SUSPECT = r"[\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{1d400}-\x{1d7ff}]"
"""Every text whose letters are written wide or as mathematical signs matches this (of Rust's kind)."""

_APART = re.compile(r"(?<![^\W_])[A-Za-z](?P<between>[ ._-])[A-Za-z](?:(?P=between)[A-Za-z])+(?![^\W_])")


def readable(text: str) -> str:
    """As a model reads it: letters of other shapes as plain ones (NFKC), letters that stand apart as words. For detection alone."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _APART.sub(lambda match: match[0].replace(match["between"], ""), plain)


def injections(text: str) -> list[str]:
    """The flags of a text, sorted."""
    text = readable(text)
    low = lower(text)
    found: set[str] = set()
    for name, hints, regex in PATTERNS:
        if name not in found and holds(low, hints):
            near = windows(low, hints[0], _MARGIN, _MARGIN)
            found |= {name for begin, end in near if regex.search(text, begin, end)}
    return [f"{PREFIX}{name}" for name in sorted(found)]
