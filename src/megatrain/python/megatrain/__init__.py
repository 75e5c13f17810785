"""Trains and fine-tunes large language models on one GPU, at full precision.

    import megatrain
    result = megatrain.train("chat.yaml", on_step=lambda step: print(step.step, step.loss))
    print(megatrain.chat(result["model"], "Please swap left side"))

Configurations are those of the program: a file's path, or the same keys as a dict. Errors are `megatrain.Error`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy
import numpy.typing

from megatrain._error import Error
from megatrain._load import load as _load

if TYPE_CHECKING:
    from megatrain import _core
    from megatrain._core import Step
else:
    _core = _load()
    Step = _core.Step
    Step.__module__ = "megatrain"

__version__: str = _core.version
__all__ = [
    "Answer",
    "Error",
    "Model",
    "Step",
    "chat",
    "export",
    "generate",
    "log_probs",
    "logits",
    "plan",
    "quiet",
    "train",
]

Path = str | os.PathLike[str]
Config = Path | Mapping[str, Any]
Message = Mapping[str, Any]
Floats = numpy.typing.NDArray[numpy.float32]


class Answer(str):
    """The text of an answer, with what is known about it."""

    ids: list[int]
    """Every generated token, an end token included."""
    prompt_tokens: int
    finish: str
    """"stop": an end token or a stop text came; "length": `max_tokens` or the context ended it."""

    @classmethod
    def _of(cls, reply: tuple[str, list[int], int, bool]) -> Answer:
        answer = cls(reply[0])
        answer.ids, answer.prompt_tokens = reply[1], reply[2]
        answer.finish = "stop" if reply[3] else "length"
        return answer


def _takes_interrupts() -> bool:
    """Whether ctrl-C reaches this thread as KeyboardInterrupt, rather than a handler of the caller's own."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _plain(value: Any) -> Any:
    """What JSON lacks: paths, and the scalars and arrays of numpy."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a configuration holds {type(value).__name__}; expected text, numbers, lists and dicts")


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _config(config: Config) -> tuple[str, str | None]:
    """The name that messages use, and the text if there is no file."""
    if isinstance(config, Mapping):
        return "the configuration", _json(dict(config))
    return os.fspath(config), None


def _overrides(overrides: Mapping[str, Any] | None, prefix: str = "") -> list[str]:
    """Words of the command line: {"optim": {"lr": 1e-4}} and {"optim.lr": 1e-4} are both --optim.lr=0.0001."""
    words = []
    for key, value in (overrides or {}).items():
        if isinstance(value, Mapping):
            words += _overrides(value, f"{prefix}{key}.")
        else:
            text = os.fspath(value) if isinstance(value, str | os.PathLike) else _json(value)
            words.append(f"--{prefix}{key}={text}")
    return words


def _sizes(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _ids(token_ids: Any) -> numpy.typing.NDArray[numpy.int32]:
    ids = numpy.asarray(token_ids)
    if ids.size == 0:
        ids = ids.astype(numpy.int32)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"token ids are integers, not {ids.dtype}")
    if ids.ndim != 1:
        raise ValueError(f"token ids have one dimension here, not {ids.ndim}")
    limits = numpy.iinfo(numpy.int32)
    if ids.size and (ids.min() < 0 or ids.max() > limits.max):
        raise Error("a token id is negative or beyond 2147483647", 3)
    return numpy.ascontiguousarray(ids, dtype=numpy.int32)


def train(
    config: Config,
    on_step: Callable[[Step], object] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains, as `megatrain train` does, and returns its JSON: run_dir, step, loss, model, eval_loss, state.

    `config` is the path of a CONFIG.yaml, or its keys as a dict. `overrides` replaces some of them, as options of the
    command line do: {"optim.lr": 1e-4, "run_dir": "runs/a"}.

    `on_step` is called after each step with a `Step`. Ctrl-C, and any exception of `on_step`, saves a checkpoint and
    ends the run; KeyboardInterrupt or that exception is then raised. {"resume": True} among the overrides continues.
    """
    name, text = _config(config)
    result: dict[str, Any] = json.loads(_core.train(name, text, _overrides(overrides), on_step, _takes_interrupts()))
    return result


def plan(
    config: Config,
    *,
    overrides: Mapping[str, Any] | None = None,
    machine: str | None = None,
    ram: str | int | None = None,
    disk: str | int | None = None,
    layers: int | None = None,
    price: float | None = None,
    random: int | None = None,
) -> dict[str, Any]:
    """Says whether a run fits a machine and how fast it would be, as `megatrain plan --json` does.

    `config` is a configuration, or a model: a directory, a config.json, a preset or Org/Name. `machine` names another
    machine ("4090"), `ram` and `disk` its sizes ("64GiB"). The result has "fits"; if it is False, also "changes" (why)
    and "suggestions". docs/reference/cli.md lists all fields.
    """
    name, text = _config(config)
    result: dict[str, Any] = json.loads(
        _core.plan(name, text, _overrides(overrides), layers, random, price, machine, _sizes(ram), _sizes(disk))
    )
    return result


def export(
    run: Path,
    out: Path,
    *,
    dtype: str | None = None,
    gguf: str | None = None,
    adapter: bool = False,
) -> dict[str, Any]:
    """Writes the model of a run or a checkpoint to `out`, which must not exist, and returns what was written.

    The result is a Hugging Face directory, or a PEFT directory if the run trains an adapter. With `gguf` ("f32", "bf16",
    "f16", "q8_0") it is a GGUF file, and `run` may also be a model. `dtype` ("bf16", "fp32") converts the weights.
    """
    result: dict[str, Any] = json.loads(_core.export(os.fspath(run), os.fspath(out), dtype, gguf, adapter))
    return result


class Model:
    """A model in memory: a Hugging Face or PEFT directory, a name in the Hugging Face cache, or a run.

    The weights are loaded at the first use. Settings are those of `megatrain generate`: `device` ("auto", "cpu",
    "cuda"), `precision` ("bf16", "fp32"), `memory_gpu` ("20GiB") and `threads`.
    """

    def __init__(
        self,
        model: Path,
        *,
        device: str | None = None,
        precision: str | None = None,
        memory_gpu: str | int | None = None,
        threads: int | None = None,
    ) -> None:
        given = {"device": device, "precision": precision, "memory.gpu": memory_gpu, "threads": threads}
        settings = [f"--{key}={value}" for key, value in given.items() if value is not None]
        self._model = _core.Model(os.fspath(model), settings)

    @overload
    def generate(self, prompts: str, **sampling: Any) -> Answer: ...
    @overload
    def generate(self, prompts: Iterable[str], **sampling: Any) -> list[Answer]: ...
    def generate(self, prompts: str | Iterable[str], **sampling: Any) -> Answer | list[Answer]:
        """Continues one text or several. See `megatrain.generate`."""
        if isinstance(prompts, str):
            return self._answer([prompts], False, **sampling)[0]
        return self._answer(list(prompts), False, **sampling)

    def chat(self, messages: str | Sequence[Message], *, system: str | None = None, **sampling: Any) -> Answer:
        """Answers a conversation. See `megatrain.chat`."""
        conversation = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        if system is not None:
            conversation.insert(0, {"role": "system", "content": system})
        return self._answer([_json(conversation)], True, **sampling)[0]

    def log_probs(self, token_ids: Any) -> Floats:
        """The log-probability of each token after those before it. See `megatrain.log_probs`."""
        if getattr(token_ids, "ndim", 1) == 2:
            return numpy.stack([self.log_probs(row) for row in token_ids])
        return self._model.log_probs(_ids(token_ids))

    def logits(self, token_ids: Any, last: int = 1) -> Floats:
        """The logits after each of the last tokens. See `megatrain.logits`."""
        return self._model.logits(_ids(token_ids), last)

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, with the special tokens that the tokenizer adds."""
        return self._model.encode(text)

    def decode(self, token_ids: Any) -> str:
        """The text of token ids, special tokens included."""
        return self._model.decode(_ids(token_ids))

    @property
    def vocab(self) -> int:
        """The number of token ids."""
        return self._model.vocab

    @property
    def max_position(self) -> int:
        """The most tokens of a sequence."""
        return self._model.max_position

    def _answer(
        self,
        prompts: list[str],
        chat: bool,
        *,
        max_tokens: int = 256,
        temperature: float = 0,
        top_p: float | None = None,
        top_k: int | None = None,
        seed: int = 0,
        stop: str | Sequence[str] = (),
    ) -> list[Answer]:
        stops = [stop] if isinstance(stop, str) else list(stop)
        replies = self._model.generate(
            prompts, chat, max_tokens, temperature, top_p, top_k, seed, stops, _takes_interrupts()
        )
        return [Answer._of(reply) for reply in replies]


def _model(model: Path | Model) -> Model:
    return model if isinstance(model, Model) else Model(model)


@overload
def generate(model: Path | Model, prompts: str, **sampling: Any) -> Answer: ...
@overload
def generate(model: Path | Model, prompts: Iterable[str], **sampling: Any) -> list[Answer]: ...
def generate(model: Path | Model, prompts: str | Iterable[str], **sampling: Any) -> Answer | list[Answer]:
    """Continues one text, or each text of a list, and returns one `Answer` for each.

    Sampling, with its defaults: max_tokens=256, temperature=0 (the likeliest token), top_p=None, top_k=None, seed=0,
    stop=() (texts before which an answer ends). Give a `Model` to load the weights once for many calls.
    """
    return _model(model).generate(prompts, **sampling)


def chat(
    model: Path | Model,
    messages: str | Sequence[Message],
    *,
    system: str | None = None,
    **sampling: Any,
) -> Answer:
    """Answers a message, or a conversation [{"role": "user", "content": "…"}, …], by the model's chat template.

    Sampling as for `generate`.
    """
    return _model(model).chat(messages, system=system, **sampling)


def log_probs(model: Path | Model, token_ids: Any) -> Floats:
    """The natural log-probability of each token given those before it.

    `token_ids` (T) gives (T - 1): entry i is that of token_ids[i + 1]. An array (B, T) gives (B, T - 1). Memory does not
    grow with T times the vocabulary.
    """
    return _model(model).log_probs(token_ids)


def logits(model: Path | Model, token_ids: Any, last: int = 1) -> Floats:
    """The logits (last, vocab) that the model gives after each of the last tokens of `token_ids` (T)."""
    return _model(model).logits(token_ids, last)


def quiet(silent: bool = True) -> None:
    """Turns the log on standard error off or on, for the whole process."""
    _core.quiet(silent)
