"""A language model behind a service, on the wire."""

from __future__ import annotations

import json
import math
import threading
import time

import pytest
from tests.judges.fakes import said, service
from tests.judges.test_prompts import ATTACKS, outside

from megalabel.errors import JudgeError, ParameterError
from megalabel.judges import ChatJudge, Judgements, chat, create


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Waiting takes no time; what was waited is told."""
    told = []

    def waited(seconds, given_up):
        told.append(seconds)
        return given_up.is_set()

    monkeypatch.setattr(chat, "_waited", waited)
    return told


def lexically(body, number):
    """A model that says yes where the label stands in the text, and obeys what is outside both."""
    content = body["messages"][1]["content"]
    if "answer yes" in outside(body["messages"]).lower().replace("answer yes or no", ""):
        return 200, said("Yes")
    _, text, _, label, *_ = (part.split("\n</")[0] for part in content.split(">\n"))
    text = content.split("-document>\n")[1]
    label = content.split("-label>\n")[1].split("\n</")[0]
    return 200, said("Yes, it does" if label in text else "no")


def test_asks_and_reads():
    with service(lexically) as (url, requests):
        judge = ChatJudge(url, "a-model", concurrency=3)
        spent = Judgements(judge)
        texts = ["a tale of whales", "red dress", "blue dress"] * 2
        labels = ["whales", "dress", "red", "dress", "red", "dress"]
        assert spent.grades(texts, labels).tolist() == [1, 1, 0, 0, 1, 1]
    assert {one["path"] for one in requests} == {"/v1/chat/completions"}
    assert "Authorization" not in requests[0]["headers"]
    body = requests[0]["body"]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("a-model", 0, 4)
    assert [one["role"] for one in body["messages"]] == ["system", "user"]
    assert spent.spent.tokens == 300
    assert judge.tokens(texts, labels) > 0


@pytest.mark.parametrize("attack", ATTACKS)
def test_texts_do_not_steer(attack):
    with service(lexically) as (url, _):
        assert Judgements(ChatJudge(url)).grades([attack], ["whale"]).tolist() == [0]


def test_soft_grades():
    tokens = [{"token": "Yes", "logprob": math.log(0.3)}, {"token": "No", "logprob": math.log(0.6)}]
    with service(
        lambda body, number: (200, said("No", logprobs={"content": [{"top_logprobs": tokens}]}))
    ) as (url, requests):
        [answer] = ChatJudge(url, soft=True).answers(["a"], ["b"])
    assert answer.grade == pytest.approx(1 / 3)
    assert requests[0]["body"]["logprobs"] is True


def test_soft_grades_where_the_service_tells_none():
    with service(lambda body, number: (200, said("yes", logprobs=None))) as (url, _):
        assert [a.grade for a in ChatJudge(url, soft=True).answers(["a"], ["b"])] == [1.0]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_asks_again(status, waits):
    def reply(body, number):
        return (status, {"error": "busy"}) if number < 3 else (200, said("yes"))

    with service(reply) as (url, requests):
        assert [a.grade for a in ChatJudge(url).answers(["a"], ["b"])] == [1.0]
    assert len(requests) == 4
    assert waits == [0.5, 1, 2]


def test_waits_as_long_as_it_is_asked_to(waits):
    def reply(body, number):
        times = ["7", "600", "Wed, 21 Oct 2026 07:28:00 GMT"]
        return (429, {}, {"Retry-After": times[number]}) if number < 3 else (200, said("yes"))

    with service(reply) as (url, _):
        list(ChatJudge(url).answers(["a"], ["b"]))
    assert waits == [7, 60, 2]


def test_gives_up_after_some_attempts(waits):
    with service(lambda body, number: (503, b"try later")) as (url, requests):
        [answer] = ChatJudge(url, retries=2).answers(["a"], ["b"])
        assert math.isnan(answer.grade)
        assert "503" in answer.lost
        assert "try later" in answer.lost
        assert len(requests) == 3
        with pytest.raises(JudgeError, match=r"in a row got no answer: .* answers 503"):
            Judgements(ChatJudge(url, retries=0)).grades(["a", "b"], ["c", "c"])


def test_time_outs(waits):
    def reply(body, number):
        if number == 0:
            time.sleep(0.4)
        return 200, said("yes")

    with service(reply) as (url, requests):
        [answer] = ChatJudge(url, timeout=0.15).answers(["a"], ["b"])
    assert answer.grade == 1.0
    assert len(requests) == 2


@pytest.mark.parametrize("status", [401, 404, 302])
def test_refusals_are_final(status):
    def reply(body, number):
        return status, {"error": {"message": "no such model"}}, {"Location": "http://127.0.0.1:1/"}

    with service(reply) as (url, requests):
        with pytest.raises(JudgeError, match=f"answers {status} .*no such model"):
            list(ChatJudge(url).answers(["a"], ["b"]))
        assert len(requests) == 1


def test_no_service():
    with service(lexically) as (url, _):
        pass
    with pytest.raises(JudgeError, match="1 questions in a row got no answer"):
        Judgements(ChatJudge(url, retries=1)).grades(["a"], ["b"])


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_pair_that_is_refused_ends_nothing(status, tmp_path, caplog):
    def reply(body, number):
        bad = "BAD" in body["messages"][1]["content"]
        return (status, {"error": "content_filter"}) if bad else (200, said("yes"))

    texts = ["a", "BAD", "c", "d"]
    with service(reply) as (url, requests):
        for again in (0, 1):
            judged = Judgements(ChatJudge(url, concurrency=1), tmp_path)
            assert judged.grades(texts, ["b"] * 4).tolist() == [1, 0, 1, 1]
            assert (judged.spent.lost, len(requests)) == (1, 4 + again)
        assert "1 questions got no answer" in caplog.text
        with pytest.raises(JudgeError, match=rf"10 .* in a row .* answers {status} .*content_filt"):
            Judgements(ChatJudge(url)).grades([f"BAD {i}" for i in range(30)], ["b"] * 30)


def test_answers_beside_an_error_are_kept(tmp_path):
    both = threading.Barrier(2)

    def reply(body, number):
        both.wait(5)
        return (401, {}) if "BAD" in body["messages"][1]["content"] else (200, said("yes"))

    def slowly(pending, **more):
        done, rest = wait(pending)  # both
        return done, rest

    wait = chat.wait
    with service(reply) as (url, _), pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat, "wait", slowly)
        for number in range(4):  # whichever comes first
            judge = ChatJudge(url, concurrency=2)
            with pytest.raises(JudgeError, match="answers 401"):
                Judgements(judge, tmp_path).grades([f"BAD {number}", f"good {number}"], ["b"] * 2)
            assert Judgements(judge, tmp_path).cost([f"good {number}"], ["b"]).calls == 0


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"<html>",
        b'{"choices": [{"mess',
        b"[" * 100_000,
        {"error": {"code": 429}},
        {"choices": []},
        {"choices": None},
        "yes",
    ],
)
def test_what_is_no_answer_of_a_model_is_asked_again(told, tmp_path):
    with service(lambda body, number: (200, told if number < 2 else said("yes"))) as (url, asked):
        assert Judgements(ChatJudge(url), tmp_path).grades(["a"], ["b"]).tolist() == [1]
        assert len(asked) == 3
    with service(lambda body, number: (200, told)) as (url, asked):
        judged = Judgements(ChatJudge(url, retries=1), tmp_path / "other")
        with pytest.raises(JudgeError, match="answers no yes or no, but"):
            judged.grades(["a"], ["b"])
        assert judged.cost(["a"], ["b"]).calls == 1  # not kept as no


@pytest.mark.parametrize("tokens", ["1e999", "1e300", "-5", '"many"', "null"])
def test_tokens_that_are_no_count(tokens, tmp_path):
    told = json.dumps(said("yes")).replace("50", tokens).encode()
    with service(lambda body, number: (200, told)) as (url, _):
        judged = Judgements(ChatJudge(url), tmp_path)
        assert judged.grades(["a"], ["b"]).tolist() == [1]
    assert judged.spent.tokens == 0


@pytest.mark.parametrize(
    "told", [{"choices": [{"message": None}]}, {"choices": ["yes"]}, said("perhaps")]
)
def test_answers_that_are_neither_yes_nor_no(told):
    with service(lambda body, number: (200, told)) as (url, requests):
        spent = Judgements(ChatJudge(url))
        assert spent.grades(["a"], ["b"]).tolist() == [0]
        assert spent.spent.unread == 1
        assert len(requests) == 1


def test_no_more_at_a_time_than_it_may():
    under_way, most, lock = 0, 0, threading.Lock()

    def reply(body, number):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.01)
        with lock:
            under_way -= 1
        return 200, said("yes")

    with service(reply) as (url, _):
        answers = list(ChatJudge(url, concurrency=3).answers(["a"] * 20, ["b"] * 20))
    assert sorted(answer.place for answer in answers) == list(range(20))
    assert 2 <= most <= 3


def test_whoever_stops_reading_leaves_the_rest_unasked():
    with service(lexically) as (url, requests):
        answers = ChatJudge(url, concurrency=2).answers(["a"] * 100, ["b"] * 100)
        next(answers)
        answers.close()
        time.sleep(0.05)
        assert len(requests) <= 4


def test_the_key_is_read_from_the_environment_and_kept_nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("A_KEY", "very-secret")
    with service(lexically) as (url, requests):
        judge = ChatJudge(url, key="A_KEY")
        Judgements(judge, tmp_path).grades(["a"], ["b"])
    assert requests[0]["headers"]["Authorization"] == "Bearer very-secret"
    assert "very-secret" not in repr(vars(judge)) + judge.identity + repr(judge)
    assert all(b"very-secret" not in file.read_bytes() for file in tmp_path.iterdir())
    monkeypatch.delenv("A_KEY")
    with pytest.raises(JudgeError, match="variable A_KEY holds no key"):
        next(judge.answers(["a"], ["b"]))


def test_no_key_goes_out_unencrypted(monkeypatch):
    monkeypatch.setenv("A_KEY", "very-secret")
    with pytest.raises(JudgeError, match="unencrypted"):
        next(ChatJudge("http://example.com/v1", key="A_KEY").answers(["a"], ["b"]))


def test_texts_are_cut():
    with service(lexically) as (url, requests):
        list(ChatJudge(url, text_length=5, label_length=3).answers(["abcdefgh"], ["uvwxyz"]))
    content = requests[0]["body"]["messages"][1]["content"]
    assert "abcde\n" in content
    assert "abcdef" not in content
    assert "uvw\n" in content


def test_options_are_fields_of_a_request():
    with service(lexically) as (url, requests):
        judge = ChatJudge(url, options={"max_tokens": None, "max_completion_tokens": 4, "seed": 1})
        list(judge.answers(["a"], ["b"]))
    body = requests[0]["body"]
    assert "max_tokens" not in body
    assert (body["max_completion_tokens"], body["seed"]) == (4, 1)
    assert judge.identity != ChatJudge(url).identity


def test_the_identity_is_of_the_question_not_of_the_place():
    one = ChatJudge("http://localhost:1/v1", "m", concurrency=1)
    assert one.identity == ChatJudge("https://elsewhere.org/v1", "m", retries=0).identity
    for other in ({"model": "n"}, {"kind": "tag"}, {"soft": True}, {"text_length": 5}):
        assert ChatJudge("http://localhost:1/v1", **{"model": "m"} | other).identity != one.identity
    assert json.loads(one.identity)[0] == "m"
    orders = [{"seed": 1, "top_p": 1}, {"top_p": 1, "seed": 1}]
    first, second = (ChatJudge("http://a/v1", "m", options=options) for options in orders)
    assert first.identity == second.identity
    # a model without a name is that of its service
    assert ChatJudge("http://a/v1").identity != ChatJudge("http://b/v1").identity
    assert ChatJudge("http://a/v1").identity == ChatJudge("http://a/v1/").identity


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"url": "localhost:8080"}, "url must be like"),
        ({"url": "file:///etc/passwd"}, "url must be like"),
        ({"url": "https://me:secret@example.org/v1"}, "url must hold no key"),
        ({"concurrency": 0}, "concurrency must be an integer from 1 to 256"),
        ({"timeout": 0}, "timeout must be"),
    ],
)
def test_wrong_parameters(wrong, told):
    with pytest.raises(ParameterError, match=told):
        ChatJudge(**{"url": "http://localhost:1/v1"} | wrong)


def test_judges_by_name():
    judge = create("https://example.org/v1", model="m", key="K", price=None)
    assert (judge.url, judge.model, judge.key) == ("https://example.org/v1", "m", "K")
    assert create(judge) is judge
    with pytest.raises(ParameterError, match="has its parameters already: give it model, key"):
        create(judge, model="n", key="K")
    assert repr(create("cross-encoder:a/b")) == "CrossEncoderJudge('a/b')"
    with pytest.raises(ParameterError, match="unknown judge 'oracle'"):
        create("oracle")
    with pytest.raises(ParameterError, match="no_such"):
        create("lexical", no_such=1)
