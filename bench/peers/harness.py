"""What the peers share: the shape as arguments, the timed loop, the line of results."""

import argparse
import json
import resource
import statistics
import sys
import time

import torch


def add_step(parser, micro_batch=8, steps=5):
    """The options that every peer has."""
    for name, value in (("batch", 32), ("seq-len", 1024), ("micro-batch", micro_batch)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("-r", "--steps", type=int, default=steps, help="the first one warms up")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))


def checked(parser):
    """The arguments, refused where add_step()'s options cannot be obeyed."""
    arguments = parser.parse_args()
    if arguments.batch % arguments.micro_batch:
        parser.error("--micro-batch must divide --batch")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --device cpu with small sizes checks that the script runs")
    return arguments


def parse(description):
    parser = argparse.ArgumentParser(description=description)
    for name, value in (("layers", 20), ("hidden", 3584), ("ff", 18944), ("heads", 28), ("kv-heads", 4),
                        ("head-dim", 128), ("vocab", 152064)):
        parser.add_argument("--" + name, type=int, default=value)
    add_step(parser)
    parser.add_argument("--recompute", action="store_true", help="recompute every block in backward")
    return checked(parser)


def micro_batches(arguments, step):
    generator = torch.Generator(arguments.device).manual_seed(step)
    tokens = torch.randint(arguments.vocab, (arguments.batch, arguments.seq_len), device=arguments.device,
                           generator=generator)
    return tokens.split(arguments.micro_batch)


def trained_tokens(arguments):
    return arguments.batch * (arguments.seq_len - 1)


def train_step(model, optimizer, arguments, step):
    """One optimizer step over the micro-batches, clipped at 1.0; the step's mean loss. model(tokens) is a sum."""
    total = 0
    for tokens in micro_batches(arguments, step):
        loss = model(tokens) / trained_tokens(arguments)
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


def single_process_group(device):
    """A process group of this process alone, met in this process' own memory."""
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
                                         store=torch.distributed.HashStore(), rank=0, world_size=1)


def report(system, arguments, run_step):
    """Calls run_step(step) and prints the line; out of memory is a result as well."""
    seconds = []
    try:
        for step in range(arguments.steps):
            start = time.perf_counter()
            loss = run_step(step)
            if arguments.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            print(f"{system}: step {step + 1}/{arguments.steps}  loss {float(loss):.4f}  {seconds[-1]:.3f} s",
                  file=sys.stderr)
    except torch.OutOfMemoryError as error:
        print(json.dumps({"system": system, "error": "does not fit: " + str(error).split(".")[0]}))
        return
    step_s = statistics.median(seconds[1:] or seconds)
    gpu = torch.cuda.max_memory_reserved() if arguments.device == "cuda" else 0
    print(json.dumps({"system": system, "tokens_per_s": arguments.batch * arguments.seq_len / step_s,
                      "step_s": step_s, "gpu_gib": gpu / 2**30,
                      "host_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
