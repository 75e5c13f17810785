"""What OpenAI's client must find at the address that is given; see check_openai."""
import concurrent.futures
import sys

import openai

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

refused(openai.BadRequestError, tools=[{"type": "function", "function": {"name": "f"}}])
refused(openai.BadRequestError, response_format={"type": "json_object"})
refused(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 50000}])
refused(openai.NotFoundError, model="another")
print("all as it should be")
