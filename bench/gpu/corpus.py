"""Text that every machine with Python has, and a tokenizer of it: sources, documentation, manual pages, licences."""

import gzip
import hashlib
import json
import shutil
import site
import sysconfig
from pathlib import Path

SUFFIXES = {".py", ".txt", ".md", ".rst"}
NAMES = {"copyright", "COPYING", "LICENSE", "NOTICE", "README"}
BYTES_OF_A_FILE = range(256, 512 * 1024)
END = "<|endoftext|>"


def default_roots():
    paths = [sysconfig.get_path("stdlib"), *site.getsitepackages(), "/usr/lib/python3", "/usr/share/doc",
             "/usr/share/man", "/usr/share/common-licenses"]
    return [Path(path) for path in dict.fromkeys(paths) if Path(path).is_dir()]


def text_of(path):
    """The file's text, or None where it is not one of ours."""
    packed = path.suffix == ".gz"
    name = Path(path.stem) if packed else path
    manual = name.suffix[1:2].isdigit() and "man" in path.parts
    if name.suffix not in SUFFIXES and name.name not in NAMES and not manual and "common-licenses" not in path.parts:
        return None
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size not in BYTES_OF_A_FILE:
            return None
        data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        return data.decode("utf-8") if len(data) in BYTES_OF_A_FILE and b"\0" not in data else None
    except (OSError, EOFError, UnicodeDecodeError):
        return None


def collect(roots, folder, most_bytes):
    """Writes FOLDER/00000.txt … with at most that many bytes, each text once, in the order of their hashes: a mixture
    of all roots that depends on the texts alone. Returns what was taken."""
    found = {}
    for root in roots:
        for path in root.rglob("*"):
            text = text_of(path)
            if text is not None:
                found.setdefault(hashlib.sha256(text.encode()).hexdigest(), path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    taken = files = 0
    together = hashlib.sha256()
    for digest in sorted(found):
        data = text_of(found[digest]).encode()
        if taken + len(data) > most_bytes:
            continue
        (folder / f"{files:05d}.txt").write_bytes(data)
        together.update(digest.encode())
        taken, files = taken + len(data), files + 1
    return {"files_found": len(found), "files": files, "bytes": taken, "sha256": together.hexdigest()}


def train_tokenizer(texts, folder, vocab, most_bytes):
    """A byte-level BPE of the first texts, as FOLDER/tokenizer.json and tokenizer_config.json. Returns its size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # not every script has them

    chosen, total = [], 0
    for path in sorted(texts.glob("*.txt")):
        if total < most_bytes:
            chosen.append(str(path))
            total += path.stat().st_size
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(chosen, trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END], show_progress=False,
                                                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "clean_up_tokenization_spaces": False}))
    return tokenizer.get_vocab_size()
