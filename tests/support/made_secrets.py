"""Made-up secrets in the places where logs hold them, and harmless texts that look alike.

The keys follow what their issuers document (prefix, alphabet, length, checksum), not our rules. They are put together at run
time: no file of the repository holds one.
"""

from __future__ import annotations

import base64
import json
import random
import string
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

ALNUM = string.ascii_letters + string.digits
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
WORDS = "horse battery staple correct river garnet tulip mango copper velvet walnut pepper".split()


class Maker:
    """A seeded source of keys."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, alphabet: str, length: int) -> str:
        """Random characters."""
        return "".join(self.random.choices(alphabet, k=length))

    def word(self) -> str:
        """A word of everyday life."""
        return self.random.choice(WORDS)


def crc62(body: str) -> str:
    """The six digits that GitHub and npm end a token with."""
    number, digits = zlib.crc32(body.encode()), ""
    while number:
        number, digit = divmod(number, 62)
        digits = BASE62[digit] + digits
    return digits.rjust(6, "0")


def checked(prefix: str) -> Callable[[Maker], str]:
    def make(m: Maker) -> str:
        body = m.some(ALNUM, 30)
        return prefix + body + crc62(body)

    return make


def plain(prefix: str, alphabet: str, length: int, end: str = "") -> Callable[[Maker], str]:
    return lambda m: prefix + m.some(alphabet, length) + end


def jwt(m: Maker) -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {
        "sub": m.some(string.digits, 10),
        "name": m.word(),
        "iat": 1_700_000_000 + m.random.randrange(10**7),
    }
    return ".".join([part({"alg": "HS256", "typ": "JWT"}), part(claims), m.some(URLSAFE, 43)])


def pem(kind: str) -> Callable[[Maker], str]:
    def make(m: Maker) -> str:
        lines = [m.some(BASE64, 64) for _ in range(m.random.randint(6, 25))] + [m.some(BASE64, 30) + "=="]
        mark = f"{kind}PRIVATE" + " KEY"
        return "\n".join([f"-----BEGIN {mark}-----", *lines, f"-----END {mark}-----"])

    return make


def password(m: Maker) -> str:
    """As people and managers make them."""
    r = m.random
    styles = (
        lambda: m.word().capitalize() + m.some(string.digits, r.randint(2, 4)) + r.choice("!?#*"),
        lambda: m.word() + r.choice("-_.") + m.word() + m.some(string.digits, 2),
        lambda: m.some(ALNUM, r.randint(8, 20)) + m.some(string.digits, 1),
        lambda: m.some(ALNUM + "!#%*+=?^_~", r.randint(12, 24)) + "9x",
    )
    return r.choice(styles)()


def discord(m: Maker) -> str:
    user = base64.b64encode(m.some("123456789", 18).encode()).decode().rstrip("=")
    return ".".join([user, m.some(URLSAFE, 6), m.some(URLSAFE, 27)])


def pypi(m: Maker) -> str:
    return "pypi-" + "AgEIcHlwaS5vcmc" + m.some(URLSAFE, 140)


def openai_old(m: Maker) -> str:
    return "sk-" + m.some(ALNUM, 20) + "T3Blbk" + "FJ" + m.some(ALNUM, 20)


def openai_project(m: Maker) -> str:
    return "sk-" + "proj-" + m.some(URLSAFE, 74) + "T3Blbk" + "FJ" + m.some(URLSAFE, 74)


class Kind(NamedTuple):
    """A kind of key: the name that programs give it, and how one is made. `known` keys give themselves away anywhere."""

    name: str
    variable: str
    make: Callable[[Maker], str]
    known: bool = True


KINDS = (
    Kind("aws id", "AWS_ACCESS_KEY_ID", plain("AK" + "IA", BASE32, 16)),
    Kind("aws secret", "AWS_SECRET_ACCESS_KEY", plain("", BASE64, 40), False),
    Kind("github classic", "GITHUB_TOKEN", checked("gh" + "p_")),
    Kind("github app", "GH_TOKEN", checked("gh" + "s_")),
    Kind(
        "github fine-grained",
        "GITHUB_TOKEN",
        lambda m: "github_" + "pat_" + m.some(ALNUM, 22) + "_" + m.some(ALNUM, 59),
    ),
    Kind("gitlab", "GITLAB_TOKEN", plain("gl" + "pat-", URLSAFE, 20)),
    Kind(
        "slack bot",
        "SLACK_BOT_TOKEN",
        lambda m: f"xo{'xb'}-{m.some(string.digits, 12)}-{m.some(string.digits, 13)}-{m.some(ALNUM, 24)}",
    ),
    Kind(
        "slack webhook",
        "SLACK_WEBHOOK_URL",
        lambda m: (
            f"https://hooks.slack.com/{'services'}/T{m.some(BASE32, 8)}/B{m.some(BASE32, 8)}/{m.some(ALNUM, 24)}"
        ),
    ),
    Kind("stripe live", "STRIPE_SECRET_KEY", plain("sk" + "_live_", ALNUM, 24)),
    Kind("stripe restricted", "STRIPE_API_KEY", plain("rk" + "_live_", ALNUM, 99)),
    Kind("openai old", "OPENAI_API_KEY", openai_old),
    Kind("openai project", "OPENAI_API_KEY", openai_project),
    Kind("anthropic", "ANTHROPIC_API_KEY", plain("sk-" + "ant-api03-", URLSAFE, 93, "AA")),
    Kind("google", "GOOGLE_API_KEY", plain("AI" + "za", URLSAFE, 35)),
    Kind("azure storage", "AZURE_STORAGE_KEY", plain("", BASE64, 86, "=="), False),
    Kind("hugging face", "HF_TOKEN", plain("h" + "f_", string.ascii_letters, 33, "Q")),
    Kind("npm", "NPM_TOKEN", checked("np" + "m_")),
    Kind("pypi", "TWINE_PASSWORD", pypi),
    Kind(
        "sendgrid", "SENDGRID_API_KEY", lambda m: "SG" + "." + m.some(URLSAFE, 22) + "." + m.some(URLSAFE, 43)
    ),
    Kind("twilio", "TWILIO_AUTH_TOKEN", plain("", HEX, 32), False),
    Kind("telegram", "TELEGRAM_BOT_TOKEN", lambda m: m.some("123456789", 10) + ":AA" + m.some(URLSAFE, 33)),
    Kind("discord", "DISCORD_TOKEN", discord),
    Kind("digitalocean", "DIGITALOCEAN_TOKEN", plain("do" + "p_v1_", HEX, 64)),
    Kind("datadog", "DD_API_KEY", plain("", HEX, 32), False),
    Kind("mailgun", "MAILGUN_API_KEY", plain("", HEX, 32), False),
    Kind("heroku", "HEROKU_API_KEY", lambda m: "-".join(m.some(HEX, n) for n in (8, 4, 4, 4, 12)), False),
    Kind("cloudflare", "CLOUDFLARE_API_TOKEN", plain("", URLSAFE, 40), False),
    Kind("shopify", "SHOPIFY_ACCESS_TOKEN", plain("shp" + "at_", HEX, 32)),
    Kind("databricks", "DATABRICKS_TOKEN", plain("da" + "pi", HEX, 32)),
    Kind("vault", "VAULT_TOKEN", plain("hv" + "s.", URLSAFE, 90)),
    Kind("groq", "GROQ_API_KEY", plain("gs" + "k_", ALNUM, 52)),
    Kind("replicate", "REPLICATE_API_TOKEN", plain("r8" + "_", ALNUM, 37)),
    Kind("linear", "LINEAR_API_KEY", plain("lin_" + "api_", ALNUM, 40)),
    Kind("tavily", "TAVILY_API_KEY", plain("tv" + "ly-", ALNUM, 32)),
    Kind("jwt", "ACCESS_TOKEN", jwt),
    Kind("opaque token", "SERVICE_TOKEN", plain("", ALNUM, 36), False),
    Kind("password", "DB_PASSWORD", password, False),
)
"""Keys that stand in one word."""
BLOCKS = (
    Kind("ssh key", "SSH_KEY", pem("OPENSSH ")),
    Kind("rsa key", "PRIVATE_KEY", pem("RSA ")),
    Kind("pkcs8 key", "KEY", pem("")),
)


class Sample(NamedTuple):
    """A text with a secret that must not be left in it. `as_json`: the text is a call's arguments."""

    kind: str
    carrier: str
    secret: str
    text: str
    as_json: bool = False


Carrier = Callable[[Maker, str, str], str]


def _env_file(m: Maker, name: str, value: str) -> str:
    return f"# local settings\nDEBUG=1\nREGION=eu-west-{m.random.randint(1, 3)}\n{name}={value}\nPORT=8080"


def _traceback(m: Maker, name: str, value: str) -> str:
    return (
        f'Traceback (most recent call last):\n  File "/app/{m.word()}.py", line {m.random.randint(2, 900)}, in <module>\n'
        f"    client = Client(base_url=URL, {name.lower()}='{value}', timeout=30)\nValueError: bad response 401"
    )


def _log_line(m: Maker, name: str, value: str) -> str:
    return f"2024-05-{m.random.randint(10, 28)} 12:00:01,123 INFO worker-{m.random.randint(1, 9)} retry {name.lower()}={value} attempt=2"


CARRIERS: dict[str, Carrier] = {
    ".env file": _env_file,
    "export": lambda m, name, value: (
        f'cd /srv/{m.word()} && export {name}="{value}" && python run.py --epochs 3'
    ),
    "inline variable": lambda m, name, value: f"$ {name}={value} python -m pytest -q tests/{m.word()}",
    "docker": lambda m, name, value: f"docker run --rm -e {name}={value} -p 8080:80 {m.word()}:latest",
    "python": lambda m, name, value: (
        f'import os\n\n{name} = "{value}"\n\n\ndef {m.word()}():\n    return {name}\n'
    ),
    "os.environ": lambda m, name, value: f"os.environ['{name}'] = '{value}'\nprint('ready')",
    "keyword": lambda m, name, value: (
        f'client = {m.word().capitalize()}Client({name.lower()}="{value}", retries=2)'
    ),
    "yaml": lambda m, name, value: (
        f"service:\n  name: {m.word()}\n  {name.lower()}: {value}\n  replicas: 2\n"
    ),
    "quoted yaml": lambda m, name, value: f'{m.word()}:\n  {name.lower()}: "{value}"\n',
    "toml": lambda m, name, value: f'[{m.word()}]\n{name.lower()} = "{value}"\n',
    "json": lambda m, name, value: json.dumps(
        {"host": f"{m.word()}.internal", name.lower(): value, "port": 5432}, indent=2
    ),
    "python repr": lambda m, name, value: repr({"user": m.word(), name.lower(): value, "ttl": 60}),
    "json in json": lambda m, name, value: json.dumps(
        {"exit_code": 0, "stdout": f'export {name}="{value}"\nexport A="1"\n'}
    ),
    "traceback": _traceback,
    "log line": _log_line,
    "k8s": lambda m, name, value: json.dumps(
        {"env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": name, "value": value}]}
    ),
    "powershell": lambda m, name, value: f'$env:{name} = "{value}"; .\\{m.word()}.ps1',
}
"""Places where a secret has a name."""
BARE: dict[str, Carrier] = {
    "prose": lambda m, name, value: (
        f"Sure, use this one for the {m.word()} service: {value} and tell me what it says."
    ),
    "result": lambda m, name, value: value,
    "table": lambda m, name, value: f"| id | value |\n|---|---|\n| {m.word()} | {value} |\n",
    "list": lambda m, name, value: f"1. {m.word()}\n2. `{value}`\n3. {m.word()}",
    "diff": lambda m, name, value: f"--- a/conf\n+++ b/conf\n@@ -1,2 +1,2 @@\n-{m.word()}\n+  - {value}\n",
}
"""Places where only the secret itself gives it away."""
ARGUMENTS: dict[str, Callable[[Maker, str, str], object]] = {
    "arguments: field": lambda m, name, value: {"user": m.word(), name.lower(): value},
    "arguments: nested": lambda m, name, value: {
        "config": {"env": {name: value, "DEBUG": "1"}},
        "name": m.word(),
    },
    "arguments: command": lambda m, name, value: {
        "command": f'export {name}="{value}"\npython "{m.word()}.py"'
    },
    "arguments: file": lambda m, name, value: {
        "path": ".env",
        "text": f'# {m.word()}\n{name}={value}\nDEBUG="1"\n',
    },
    "arguments: words": lambda m, name, value: {"cmd": ["env", f"{name}={value}", "make", m.word()]},
}


def canonical(value: object) -> str:
    """As the store holds arguments."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _credentials(m: Maker) -> Iterator[Sample]:
    """Passwords and tokens in the places that are made for them."""
    safe = m.some(ALNUM, 10) + m.some(string.digits, 2)
    user, host = m.word(), m.word()
    basic = base64.b64encode(f"{user}:{safe}".encode()).decode()
    token = m.some(ALNUM, 30) + m.some(string.digits, 2)
    texts = {
        "postgres url": (f"postgresql://{user}:{safe}@{host}.example.com:5432/app?sslmode=require", safe),
        "mongodb url": (f'uri = "mongodb+srv://{user}:{safe}@cluster0.ab1cd.mongodb.net/db"', safe),
        "redis url": (f"REDIS_URL=redis://:{safe}@{host}:6379/0", safe),
        "amqp url": (f"connecting to amqp://{user}:{safe}@{host}:5672//", safe),
        "git url": (f"git clone https://{user}:{safe}@git.{host}.org/team/repo.git", safe),
        "jdbc": (f"jdbc:mysql://{host}:3306/app?user={user}&password={safe}&useSSL=true", safe),
        "ado": (f"Server=tcp:{host}.database.windows.net;User ID={user};Password={safe};Encrypt=True;", safe),
        "azure": (
            f"DefaultEndpointsProtocol=https;AccountName={host};AccountKey={(key := m.some(BASE64, 86) + '==')};EndpointSuffix=core.windows.net",
            key,
        ),
        "bearer header": (f'curl -s -H "Authorization: Bearer {token}" https://api.{host}.com/v1', token),
        "bearer json": (
            json.dumps({"headers": {"Authorization": f"Bearer {token}", "Accept": "*/*"}}),
            token,
        ),
        "bearer python": (f'headers = {{"Authorization": f"Bearer {token}"}}', token),
        "basic header": (f"> GET / HTTP/1.1\n> Authorization: Basic {basic}\n> Accept: */*", basic),
        "api key header": (f"curl -H 'X-Api-Key: {token}' https://{host}.com", token),
        "cookie": (f"Cookie: theme=dark; sessionid={token}; lang=en", token),
        "curl user": (f"curl -u {user}:{safe} https://{host}.com/x", safe),
        "query": (
            f"401 Client Error: Unauthorized for url: https://{host}.com/v1/items?api_key={token}&page=2",
            token,
        ),
        "mysql": (f"mysql -h {host} -u {user} -p{safe} app < dump.sql", safe),
        "mysql alone": (f"mysqldump -p{safe} app > dump.sql", safe),
        "docker login": (f"docker login -u {user} -p {safe} {host}.example.com", safe),
        "unzip": (f"unzip -o -P {safe} {host}.zip -d out", safe),
        "7z": (f"7z x -p{safe} {host}.7z", safe),
        "input": (f'<input type="password" name="p" value="{safe}">', safe),
        "csv": (f"id,user,password\n1,{user},{safe}\n2,{host},none\n", safe),
        "markdown table": (f"| user | password |\n|---|---|\n| {user} | {safe} |\n", safe),
        "german": (f"Dein neues Passwort lautet {safe}.", safe),
        "german colon": (f"Kennwort: {safe}\n", safe),
        "spanish": (f"contraseña: {safe}", safe),
        "french": (f"mot de passe : {safe}", safe),
        "chinese": (f"密码：{safe}，请保管好", safe),
        "words": (f'password="{(words := " ".join(m.random.sample(WORDS, 4)))}"', words),
        "mailgun": (f"api: {(mailgun := 'key' + '-' + m.some(HEX, 32))}", mailgun),
        "sshpass": (f"sshpass -p '{safe}' ssh {user}@{host}", safe),
        "flag": (f"{host}ctl login --username {user} --password {safe} --verbose", safe),
        "flag=": (f"{host}ctl login --token={token}", token),
        "netrc": (f"machine {host}.com login {user} password {safe}", safe),
        "sql": (f"CREATE USER {user} WITH PASSWORD '{safe}';", safe),
        "xml": (f"<server><username>{user}</username><password>{safe}</password></server>", safe),
        "said": (f"The new password is {safe}. Do not lose it.", safe),
        "told": (f"login: {user}\npassword: {safe}\n", safe),
    }
    for carrier, (text, secret) in texts.items():
        yield Sample("credential", carrier, secret, text)
        yield Sample(
            "credential",
            f"{carrier}, in a call",
            secret,
            canonical({"command": text + '\necho "done"\n'}),
            True,
        )


def corpus(seed: int = 0, rounds: int = 3) -> list[Sample]:
    """Every kind in every carrier that fits it, some times over."""
    m = Maker(seed)
    samples: list[Sample] = []
    for _ in range(rounds):
        for kind in KINDS:
            for carriers, as_json in (
                (CARRIERS, False),
                (BARE if kind.known else {}, False),
                (ARGUMENTS, True),
            ):
                for carrier, place in carriers.items():
                    secret = kind.make(m)
                    made = place(m, kind.variable, secret)
                    samples.append(
                        Sample(kind.name, carrier, secret, canonical(made) if as_json else str(made), as_json)
                    )
        for kind in BLOCKS:
            secret = kind.make(m)
            body = secret.splitlines()[2]
            samples += (
                Sample(kind.name, "result", body, f"$ cat id\n{secret}\n$"),
                Sample(kind.name, "cut off", body, "\n".join(secret.splitlines()[:5])),
                Sample(kind.name, "json", body, json.dumps({"stdout": secret})),
                Sample(kind.name, "python", body, f"{kind.variable} = {secret!r}"),
                Sample(
                    kind.name, "arguments", body, canonical({"content": secret, "path": "~/.ssh/id"}), True
                ),
            )
        samples += _credentials(m)
    return samples


def benign() -> list[str]:
    """Harmless texts that look like ones with a secret."""
    m = Maker(7)
    image = base64.b64encode(bytes(m.random.randrange(256) for _ in range(900))).decode()
    uuid = "-".join(m.some(HEX, n) for n in (8, 4, 4, 4, 12))
    sha, digest = m.some(HEX, 40), m.some(HEX, 64)
    integrity = base64.b64encode(bytes(m.random.randrange(256) for _ in range(64))).decode()
    return [
        f"commit {sha}\nAuthor: A <a@example.com>\n\n    fix the token parser",
        f"index {sha[:7]}..{sha[7:14]} 100644",
        f"HEAD is now at {sha[:9]} rename secret_rules",
        f"request id {uuid} took 12 ms",
        f"session: {uuid}\nuser: 17",
        f"data:image/png;base64,{image}",
        f'{{"type": "image", "data": "{image}"}}',
        f'"lodash": {{"version": "4.17.21", "integrity": "sha512-{integrity}"}}',
        f"numpy==2.1.0 --hash=sha256:{digest}",
        f"sha256:{digest}",
        f'checksum = "{digest}"\nname = "serde"',
        f"docker pull ubuntu@sha256:{digest}",
        f'ETag: W/"{sha}"',
        "def login(user: str, password: str) -> Token:",
        "password: Optional[str] = None",
        "token = tokenizer.next()",
        "token = tokenizer.convert_ids_to_tokens(ids)[0]",
        "tokens = text.split(); token = tokens[0]",
        "max_tokens=4096, temperature=0.7",
        '{"prompt_tokens": 1234, "completion_tokens": 56, "total_tokens": 1290}',
        "token_count: 128000",
        "next_page_token: CAUQAA1234567890abcdef",
        '{"nextPageToken": "EAAaBlBUOkNHUQ1234", "items": []}',
        "password = getpass.getpass()",
        'password = os.environ["DB_PASSWORD"]',
        "api_key=os.getenv('OPENAI_API_KEY')",
        "api_key = settings.openai_api_key2",
        "client = OpenAI(api_key=api_key)",
        "export OPENAI_API_KEY=YOUR_API_KEY",
        "OPENAI_API_KEY=sk-...",
        "OPENAI_API_KEY=<your key here>",
        "OPENAI_API_KEY=your_api_key_here",
        'api_key: "${OPENAI_API_KEY}"',
        "token: ${{ secrets.GITHUB_TOKEN }}",
        "password: {{ vault_db_password }}",
        "password=********",
        "secret: [REDACTED]",
        "--password $DB_PASSWORD --user bob",
        "PASSWORD=changeme",
        'input type="password" name="password" placeholder="Password"',
        '<input type="password" id="password1" required>',
        "Forgot your password? Reset it here.",
        "password: required",
        "Passwort: erforderlich",
        "contraseña: obligatoria",
        'password="must have eight characters or more"',
        'help_text={"password": "your login password goes here"}',
        "| field | password | email |\n|---|---|---|\n| type | string | string |\n",
        "user,password,result\nvalid,invalid,error\n",
        "name,pwd\nbob,/home/bob\n",
        '<input type="password" value="">',
        '<input type="password" value="{{ password }}">',
        "zip -r out.zip src -P",
        "docker login -u bob -p $TOKEN",
        "monkey-0123456789abcdef0123456789abcdef",
        "az login --use-device-code",
        "Error: password is incorrect",
        "Password must be at least 8 characters and hold 1 digit",
        "the password is base64-encoded",
        "invalid token: unexpected 'foo1234' at line 3",
        "SyntaxError: unexpected token: identifier1",
        "JSON.parse: unexpected token < at position 0",
        "The secret of good tea is 90 degrees, not 100.",
        "secret_santa_2024 list",
        "secrets.token_hex(16)",
        "from secrets import token_urlsafe",
        "k8s secret my-app-secret created",
        "kubectl get secret db-credentials-v2 -o yaml",
        "primary_key=True, foreign_key='users.id'",
        "cache_key = f'user:{user_id}:v2'",
        "public_key: ssh-ed25519",
        'if password == "":\n    raise ValueError',
        "const token = req.headers.authorization?.split(' ')[1];",
        "Authorization: Bearer <token>",
        "Authorization: Bearer $TOKEN",
        'headers = {"Authorization": f"Bearer {token}"}',
        "The basic auth flow uses the Authorization header.",
        "basic economy passengers may not cancel",
        "Cookie: 3 cups of flour",
        "accept all cookies",
        "https://example.com:8080/path?x=1",
        "http://localhost:3000/@vite/client",
        "postgres://user:password@localhost/db",
        "https://user:${PASSWORD}@host/x",
        "ssh git@github.com:owner/repo.git",
        "author@example.com wrote: at 10:30@home",
        "npm_config_cache=/root/.npm",
        "task-forces and disk-images, risk-free",
        "scikit-learn's sk-learn-contrib packages",
        "pypi-server is running",
        "HF_HOME=/data/hf_cache_2024",
        "PWD=/home/user1/app\nOLDPWD=/home/user1",
        "pwd: /srv/app2",
        "ASIAPACIFIC region, ASIA-PACIFIC",
        "AKIA is the prefix of long-term key ids",
        "eyJ is how base64 JSON begins",
        "-----BEGIN CERTIFICATE-----\nMIIB" + m.some(BASE64, 60) + "\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIB" + m.some(BASE64, 60) + "\n-----END PUBLIC KEY-----",
        "ssh-rsa AAAAB3NzaC1yc2E" + m.some(BASE64, 200) + " me@host",
        "reservation id 4WQ150, user mia_li_3668, card ending in 1234",
        "payment_id: gift_card_7219486",
        "confirmation number ZFA04Y; flight HAT204",
        "order #W2378156, item 1151293680",
        "Traceback: KeyError: 'access_token'",
        "assert response.json()['token'] is not None",
        "tokenizer.pad_token = tokenizer.eos_token",
        "parser.add_argument('--token', type=str, default=None)",
        "usage: tool [--api-key API_KEY] [--secret-file PATH]",
        "mysql -h db -u root -p app",
        "curl -u $USER:$PASS https://example.com",
        "x" * 400,
        "0123456789" * 20,
        "Pass the salt. Passes: 12. password-less login.",
        "bypass=true compass=north1234",
    ]
