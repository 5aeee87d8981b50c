"""The stand-in of the Messages API itself, without any CLI: what it makes of a prompt."""

from __future__ import annotations

import http.client
import json

import pytest
from messages_api import BadScript, Server, current_turn, parse
from real_cli import API


def user(*texts: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "[[text: no]]"}]}
TOOL_RESULT = {"role": "user", "content": [{"type": "tool_result", "content": "[[text: no]]"}]}


@pytest.mark.parametrize(
    ("messages", "turn"),
    [
        ([user("[[text: a]]")], ("[[text: a]]", 0)),
        ([user("[[text: a]]"), ANSWER, user("b")], ("b", 0)),
        ([user("[[text: a]]"), ANSWER, TOOL_RESULT], ("[[text: a]]", 1)),
        ([user("a"), ANSWER, TOOL_RESULT, ANSWER, TOOL_RESULT], ("a", 2)),
        ([user("<system-reminder>[[text: x]]</system-reminder>", "a")], ("a", 0)),
        ([user("a"), user("<system-reminder>[[text: x]]</system-reminder>")], ("a", 0)),
        ([user("a <system-reminder>[[text: x]]</system-reminder>")], ("a", 0)),
        ([user("[[text: x]]", "[Request interrupted by user]", "a")], ("a", 0)),
        ([user("a", "[Image: source: /tmp/1.png]")], ("a", 0)),
        ([user("a"), ANSWER, user("Your response above was cut off mid-stream.")], ("a", 1)),
        ([user("a"), ANSWER, user("<task-notification>[[text: x]]")], ("a", 1)),
        ([user("a"), {"role": "system", "content": "[[text: x]]"}], ("a", 0)),
    ],
)
def test_only_the_last_prompt_counts(messages, turn):
    """Old turns, answers, tool results, reminders and the CLI's own sentences are no prompts."""
    assert current_turn(messages) == turn


def test_a_script_has_steps_and_blocks():
    """Blocks stand in their order, steps are separated, JSON may hold brackets of its own."""
    call = '[[tool: Bash {"command": "[[ -f x ]]"}]]'
    first, second = parse(f'go [[think: hm]]{call}[[then]][[quoted: "]]"]] end')
    assert [block["type"] for block in first.blocks] == ["thinking", "tool_use"]
    assert first.blocks[1]["input"] == {"command": "[[ -f x ]]"}
    assert second.blocks == [{"type": "text", "text": "]]"}]
    assert parse("no directive, [but] brackets") == []


@pytest.mark.parametrize("script", ["[[txt: a]]", "[[tool: Bash {]]", "[[text: a"])
def test_a_bad_script_is_an_error(script: str):
    """A typing error in a test is seen, and not answered with something else."""
    with pytest.raises(BadScript):
        parse(script)


def ask(url: str, prompt: str, **more: object) -> tuple[int, bytes]:
    host, path = url.removeprefix("http://").split("/", 1)
    connection = http.client.HTTPConnection(host, timeout=20)
    body = json.dumps({"model": "m", "messages": [user(prompt)], **more})
    try:
        connection.request("POST", f"/{path}/v1/messages?beta=true", body, {"connection": "close"})
        with connection.getresponse() as response:
            return response.status, response.read()
    finally:
        connection.close()


def test_answers_records_and_scopes():
    """Each scope has its own record and scripts; faults end after `times`."""
    with Server() as server:
        one, two = API(f"{server.url}/t/one"), API(f"{server.url}/t/two")
        two.script("default", "[[text: from the script]]")
        prompt = "hi [[status: 429 rate_limit_error]][[times: 1]][[text: fine]]"
        assert ask(one.url, prompt)[0] == 429
        status, body = ask(one.url, prompt)
        assert status == 200
        assert json.loads(body)["content"] == [{"type": "text", "text": "fine"}]
        assert b"from the script" in ask(two.url, "anything", stream=True)[1]
        assert [len(api.requests()) for api in (one, two)] == [2, 1]
        assert one.last().user == prompt


def test_a_cut_stream_has_no_end():
    """A stream that is cut after its first delta holds that and no `message_stop`."""
    with Server() as server:
        prompt = "hi [[text: abcdef]][[chunks: 3]][[cut: delta]]"
        _, body = ask(f"{server.url}/t/x", prompt, stream=True)
    assert b'"ab"' in body
    assert b'"cd"' not in body
    assert b"message_stop" not in body


def test_a_request_can_be_waited_for():
    """`requests(count)` blocks until the request is there."""
    import threading

    with Server() as server:
        api = API(f"{server.url}/t/x")
        asking = threading.Thread(target=ask, args=(api.url, "hi"))
        asking.start()
        assert len(api.requests(1)) == 1
        asking.join()
        with pytest.raises(AssertionError):
            api.requests(2, timeout=0.05)
