"""What lm-evaluation-harness must find at the address that is given, with the tokenizer of a directory; see
check_lm_eval."""
import json
import math
import sys
import urllib.request

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

url = sys.argv[1]


def post(body):
    request = urllib.request.Request(url + "/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


name = json.load(urllib.request.urlopen(url + "/models"))["data"][0]["id"]
pairs = [("Please swap left side", " side left"), ("a b c", " d"), ("left side left side left", " side left side"),
         ("Please", " swap")]
greedy_text = post({"prompt": "Please swap", "max_tokens": 4, "temperature": 0})["choices"][0]["text"]
if greedy_text.strip():
    pairs.append(("Please swap", greedy_text))  # an answer that is the likeliest


def client(batch, tokenized):
    return LocalCompletionsAPI(model=name, base_url=url + "/completions", tokenizer=sys.argv[2],
                               tokenizer_backend="huggingface", tokenized_requests=tokenized, batch_size=batch,
                               num_concurrent=1, max_retries=1, max_length=256)


def score(context, answer):
    """By the API itself: the sum over the answer's tokens, and whether each is the likeliest."""
    ids = [model.tokenizer.encode(text) for text in (context, context + answer)]
    scored = post({"prompt": [ids[1]], "max_tokens": 0, "echo": True, "logprobs": 1})["choices"][0]["logprobs"]
    tokens, tops = scored["token_logprobs"][len(ids[0]):], scored["top_logprobs"][len(ids[0]):]
    return sum(tokens), all(token == max(top.values()) for token, top in zip(tokens, tops))


for batch, tokenized in ((1, True), (4, True), (2, False)):
    model = client(batch, tokenized)
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    scores = model.loglikelihood(asked, disable_tqdm=True)
    for (got, greedy), pair in zip(scores, pairs):
        wanted, best = score(*pair)
        assert math.isclose(got, wanted, rel_tol=1e-4, abs_tol=1e-4) and got < 0, (pair, got, wanted)
        assert greedy == best, (pair, greedy, best)
    print(f"batches of {batch}, {'ids' if tokenized else 'texts'}:", [(round(s, 3), g) for s, g in scores])

# An answer that the model gives greedily is called greedy.
context = model.tokenizer.encode("Please swap left side")
best = post({"prompt": [context], "max_tokens": 3, "temperature": 0, "logprobs": 1})["choices"][0]
assert best["logprobs"]["token_logprobs"] == [max(top.values()) for top in best["logprobs"]["top_logprobs"]]

generated = model.generate_until([Instance("generate_until", {}, ("Please swap left side", {
    "until": ["\n"], "max_gen_toks": 8, "temperature": 0}), 0)], disable_tqdm=True)
assert len(generated) == 1 and isinstance(generated[0], str)
print("generated:", generated)
print("all as it should be")
