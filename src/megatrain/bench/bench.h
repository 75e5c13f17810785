// The verbs behind `megatrain bench`. Each measures and gives back what to print, as JSON and for people.
#pragma once

#include <map>
#include <string>

#include "megatrain/bench/bench_floor.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"

namespace megatrain {

struct BenchResult {
  nlohmann::json json;
  std::string text;  // ends a line
  int code = 0;      // exit code
};

// `megatrain bench`: prints on standard output and returns the exit code.
int verb_bench(const Words& words);

BenchResult bench_link(const Words& words);
BenchResult bench_dram(const Words& words);
BenchResult bench_disk(const Words& words);
BenchResult bench_ops(const Words& words);
BenchResult bench_floor(const Words& words);
BenchResult bench_step(const Words& words);
BenchResult bench_suite(const Words& words);

// What the rows of a suite share.
struct BenchSession {
  double start_s = 0;  // of the row, on the clock of base/clock.h
  Floors floors;
};
BenchResult bench_step(const Words& words, BenchSession& session);

// "--seq-len 1024" as people type it, for "--seq_len".
Words with_key_spelling(Words words);

// The same, and a step of one micro-batch when words name a micro-batch but no batch.
Words for_one_micro_batch(Words words);

// "--gib 0.5" in bytes. Throws Error(bad_config) unless it is above 0.
int64_t gib_option(const std::string& text);

}  // namespace megatrain
