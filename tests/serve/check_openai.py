"""What OpenAI's client must find at the address that is given; see check_openai."""
import concurrent.futures
import json
import sys
import urllib.request
from typing import Literal, Optional

import openai
import pydantic

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
model = client.models.list().data[0].id
question = [{"role": "user", "content": "Please swap left side"}]


def ask(messages=question, **more):
    more = {"model": model, "messages": messages, "max_tokens": 24, "temperature": 0, **more}
    return client.chat.completions.create(**more)


def refused(kind, **more):
    try:
        ask(**more)
    except kind as error:
        print("refused, as it should be:", error)
        return
    raise SystemExit(f"{more} was not refused with {kind.__name__}")


assert client.models.retrieve(model).id == model

whole = ask()
text = whole.choices[0].message.content
print("answer:", repr(text), whole.choices[0].finish_reason, whole.usage)
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens

chunks = list(ask(stream=True, stream_options={"include_usage": True}))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
assert chunks[-1].usage == whole.usage and chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason

conversation = question + [{"role": "assistant", "content": text}, {"role": "user", "content": "Please swap again now"}]
asked = [question, conversation] * 4
alone = [ask(messages).choices[0].message.content for messages in asked]
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    together = list(pool.map(lambda messages: ask(messages).choices[0].message.content, asked))
assert together == alone, (together, alone)

drawn = [ask(temperature=1.3, seed=5, n=3).choices for _ in range(2)]
assert [c.message.content for c in drawn[0]] == [c.message.content for c in drawn[1]] and len(drawn[0]) == 3

if len(text) > 3:
    stopped = ask(stop=[text[2:4]]).choices[0]
    assert stopped.message.content == text[: text.index(text[2:4])] and stopped.finish_reason == "stop"

completion = client.completions.create(model=model, prompt=["a b", "c d"], max_tokens=5, temperature=0)
assert [choice.index for choice in completion.choices] == [0, 1]
streamed = client.completions.create(model=model, prompt="a b", max_tokens=5, temperature=0, stream=True)
assert "".join(chunk.choices[0].text for chunk in streamed) == completion.choices[0].text

with ask(stream=True, max_tokens=2000, temperature=2) as stream:  # given up half-way
    next(iter(stream))
assert ask().choices[0].message.content == text

# log-probabilities: the tokens make up the text, and at temperature 0 each is the likeliest
scored = ask(logprobs=True, top_logprobs=3).choices[0]
tokens = scored.logprobs.content
assert "".join(t.token for t in tokens) == scored.message.content == text
assert all(bytes(t.bytes).decode(errors="replace") == t.token for t in tokens if not t.token.startswith("bytes:"))
assert all(t.top_logprobs[0].logprob == t.logprob <= 0 and len(t.top_logprobs) == 3 for t in tokens)
chunks = list(ask(stream=True, logprobs=True))
assert [t.logprob for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content] == [
    t.logprob for t in tokens]
echo = client.completions.create(model=model, prompt=["a b", "c d e"], max_tokens=0, echo=True, logprobs=2)
assert [choice.text for choice in echo.choices] == ["a b", "c d e"]
assert echo.choices[1].logprobs.token_logprobs[0] is None and echo.choices[1].logprobs.token_logprobs[1] < 0
assert [echo.choices[1].text[o:].startswith(t) for o, t in
        zip(echo.choices[1].logprobs.text_offset, echo.choices[1].logprobs.tokens)] != []

# JSON: every finished answer validates
schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                           "kind": {"enum": ["cat", "dog"]},
                                           "ages": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}},
          "required": ["name", "kind", "ages"], "additionalProperties": False}
form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema, "strict": True}}
finished = 0
for seed in range(10):
    choice = ask(response_format=form, temperature=1.2, seed=seed, max_tokens=200).choices[0]
    if choice.finish_reason == "stop":
        finished += 1
        value = json.loads(choice.message.content)
        assert list(value) == ["name", "kind", "ages"] and value["kind"] in ("cat", "dog"), value
        assert len(value["name"]) <= 8 and len(value["ages"]) <= 3 and all(type(a) is int for a in value["ages"])
print(finished, "of 10 answers of the schema finished")
assert finished > 0


class Pet(pydantic.BaseModel):
    name: str
    tags: list[Literal["big", "small"]]
    owner: Optional["Pet"] = None


for seed in range(5):
    try:
        parsed = client.chat.completions.parse(model=model, messages=question, response_format=Pet, seed=seed,
                                               max_tokens=200).choices[0].message.parsed
        print("parsed:", parsed)
    except openai.LengthFinishReasonError:
        pass
anything = ask(response_format={"type": "json_object"}, max_tokens=60).choices[0]
assert anything.message.content.startswith("{")
if anything.finish_reason == "stop":
    json.loads(anything.message.content)

# tools, if the model's template has a place for them
tools = [{"type": "function", "function": {"name": "swap", "parameters": {
    "type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"],
    "additionalProperties": False}}}]
try:
    forced = ask(tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=100)
except openai.BadRequestError as error:
    assert "no place for tools" in str(error), error
    print("no tools:", error)
else:
    call = forced.choices[0].message.tool_calls[0]
    assert forced.choices[0].finish_reason == "tool_calls" and call.function.name == "swap"
    assert json.loads(call.function.arguments)["side"] in ("left", "right")
    conversation = question + [forced.choices[0].message.model_dump(exclude_none=True),
                               {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    assert ask(conversation, tools=tools).choices[0].message is not None
    deltas = [c.choices[0].delta for c in ask(tools=tools, tool_choice="required", parallel_tool_calls=False,
                                              max_tokens=100, stream=True)]
    streamed = [d.tool_calls[0] for d in deltas if d.tool_calls]
    assert len(streamed) == 1 and streamed[0].function.name == "swap", streamed
    assert streamed[0].function.arguments == call.function.arguments and streamed[0].index == 0
    print("called:", call.function)

refused(openai.BadRequestError, tools=[{"type": "function", "function": {"name": "a b"}}])
refused(openai.BadRequestError, response_format={"type": "json_schema", "json_schema": {
    "name": "n", "schema": {"type": "string", "pattern": "a+"}}})
refused(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 50000}])
refused(openai.NotFoundError, model="another")

root = sys.argv[1].removesuffix("/v1")
health = json.load(urllib.request.urlopen(root + "/health"))
metrics = urllib.request.urlopen(root + "/metrics").read().decode()
assert health["status"] == "ok" and "megatrain_queue_seconds_count" in metrics
raw = client.chat.completions.with_raw_response.create(model=model, messages=question, max_tokens=1)
assert int(raw.headers["X-Queue-Ms"]) >= 0
print("all as it should be")
