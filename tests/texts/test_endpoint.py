import duckdb
import pytest

from logforge.schemas.errors import CheckFailed, Mismatch, UnknownName, UsageError
from logforge.schemas.tables import EMBEDDINGS
from logforge.texts.encoders import embed, make_encoder
from support.stub_judge import embeddings, stub


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def con():
    with duckdb.connect() as opened:
        opened.execute(
            f"CREATE TABLE embeddings ({', '.join(f'{c.name} {c.type}' for c in EMBEDDINGS.columns)})"
        )
        yield opened


def measured(number, texts):
    """A vector that tells the text's length and first letter."""
    return embeddings([len(text), ord(text[0]), 1.0] for text in texts)


def encoder_of(server, **settings):
    settings = {"per_minute": 1e6, "backoff_s": 0.01, "timeout_s": 5, **settings}
    return make_encoder(f"openai:stub@{server.url}?" + "&".join(f"{k}={v}" for k, v in settings.items()))


TEXTS = [f"{chr(97 + n % 26)}{'x' * n}" for n in range(10)]


def test_each_text_gets_its_own_vector_in_batches_and_once(con):
    with stub(measured) as server:
        vectors = embed(con, encoder_of(server, batch=4), TEXTS * 2)
        assert [len(request["input"]) for request in server.requests] == [4, 4, 2]
        assert embed(con, encoder_of(server, batch=3), TEXTS).matrix.tobytes() == vectors.matrix.tobytes()
        assert len(server.requests) == 3, "the second time all is in the cache"
    assert server.requests[0]["model"] == "stub"
    for text in TEXTS:
        assert vectors.matrix[vectors.index(text)].tolist() == [len(text), ord(text[0]), 1]


def test_the_key_comes_from_the_environment_and_is_kept_nowhere(con, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "sk-hidden")
    with stub(measured) as server:
        encoder = encoder_of(server, key_env="OTHER_KEY")
        embed(con, encoder, ["a"])
        assert server.headers[0]["Authorization"] == "Bearer sk-hidden"
        monkeypatch.delenv("OTHER_KEY")
        encoder_of(server).encode(["a"])
        assert "Authorization" not in server.headers[1]
    kept = repr(vars(encoder)) + repr(con.sql("SELECT * FROM embeddings").fetchall())
    assert "hidden" not in kept


@pytest.mark.parametrize(
    "trouble", [429, 503, "hang up", "cut", "no JSON", embeddings([]), embeddings([[]]), "[]"]
)
def test_what_fails_for_now_is_tried_again(trouble):
    with stub(lambda number, texts: trouble if number <= 2 else measured(number, texts)) as server:
        assert encoder_of(server).encode(["ab"]).tolist() == [[2, 97, 1]]
        assert len(server.requests) == 3


def test_what_goes_on_failing_is_told_and_what_was_encoded_is_kept(con):
    with stub(lambda number, texts: 503 if number > 8 else measured(number, texts)) as server:
        with pytest.raises(CheckFailed, match="gave no vectors in 2 tries: HTTP 503"):
            embed(con, encoder_of(server, batch=1, tries=2), TEXTS)
        assert con.sql("SELECT count(*) FROM embeddings").fetchall() == [(8,)]
        server.script = measured
        embed(con, encoder_of(server, batch=1), TEXTS)
    assert len(server.requests) == 8 + 2 + 2


def test_a_refusal_is_not_tried_again_and_hides_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    with stub(lambda number, texts: 401) as server:
        with pytest.raises(UsageError, match=r"refuses: HTTP 401.*OPENAI_API_KEY") as caught:
            encoder_of(server).encode(["a"])
        assert len(server.requests) == 1
    assert "hidden" not in str(caught.value)


def test_the_size_is_checked(con):
    with stub(measured) as server:
        with pytest.raises(Mismatch, match="expected 2, found 3"):
            encoder_of(server, dimensions=2).encode(["a"])
        assert server.requests[0]["dimensions"] == 2
        assert encoder_of(server).dim == 3
        assert "dimensions" not in server.requests[1]
        embed(con, encoder_of(server), ["a"])
        server.script = lambda number, texts: embeddings([[1.0, 2.0]] * len(texts))
        with pytest.raises(Mismatch, match=r"size of the vectors .* expected 3, found 2"):
            embed(con, encoder_of(server), ["a", "b"])
    assert con.sql("SELECT count(*) FROM embeddings").fetchall() == [(1,)]


def test_vectors_of_two_models_are_not_mixed():
    with stub(lambda number, texts: embeddings([[1.0]], model=f"model {number}")) as server:
        encoder = encoder_of(server)
        encoder.encode(["a"])
        with pytest.raises(Mismatch, match="expected model 1, found model 2"):
            encoder.encode(["b"])


def test_the_rate_is_kept():
    with stub(measured) as server:
        encoder = encoder_of(server, per_minute=600)
        for text in "abc":
            encoder.encode([text])
    assert server.times[2] - server.times[0] > 0.19


def test_long_texts_are_cut_and_counted():
    with stub(measured) as server:
        encoder = encoder_of(server, max_chars=3)
        assert encoder.encode(["abcdef", "ab"])[:, 0].tolist() == [3, 2]
    assert encoder.truncated == 1


def test_the_revision_holds_what_decides_a_vector_alone():
    base = make_encoder("openai:m@http://host/v1")
    assert base.name == "openai:m@http://host/v1"
    assert (
        make_encoder("openai:m@http://host/v1/?tries=9&batch=2&key_env=K&per_minute=1").revision
        == base.revision
    )
    others = [
        "n@http://host/v1",
        "m@http://other/v1",
        "m@http://host/v1?dimensions=8",
        "m@http://host/v1?max_chars=9",
    ]
    assert len({make_encoder(f"openai:{other}").revision for other in others} | {base.revision}) == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openai:", "without model or URL"),
        ("openai:m", "without model or URL"),
        ("openai:@http://host", "without model or URL"),
        ("openai:m@http://", "must be the base URL"),
        ("openai:m@http://me:sesame@host/v1", "no user, password"),
        ("openai:m@http://host/v1?batch=none", "batch must be a number above 0"),
        ("openai:m@http://host/v1?tries=0", "tries must be a number above 0"),
        ("openai:m@http://host/v1?timeout_s=nan", "timeout_s must be a number above 0"),
    ],
)
def test_wrong_names_are_refused_without_repeating_a_secret(name, said):
    with pytest.raises(UsageError, match=said) as caught:
        make_encoder(name)
    assert "sesame" not in str(caught.value)


def test_an_unknown_setting_is_refused_without_its_value():
    with pytest.raises(UnknownName, match="unknown setting of an endpoint 'api_key'") as caught:
        make_encoder("openai:m@http://host/v1?api_key=sesame")
    assert "sesame" not in str(caught.value)


def test_there_are_no_vectors_of_tokens():
    with pytest.raises(UsageError, match="no vectors of tokens"):
        make_encoder("openai:m@http://host/v1").encode_tokens("a")


def test_vectors_that_are_not_finite_are_refused(con):
    with (
        stub(lambda number, texts: embeddings([[float("nan")]])) as server,
        pytest.raises(CheckFailed, match="not finite"),
    ):
        embed(con, encoder_of(server), ["a"])
    assert con.sql("SELECT count(*) FROM embeddings").fetchall() == [(0,)]
