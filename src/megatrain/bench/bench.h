// The verbs of `megatrain bench`. Each measures and returns what to print, as JSON and as text.
#pragma once

#include <string>
#include <vector>

#include "megatrain/bench/bench_floor.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/train/session.h"

namespace megatrain {

// This module's rows of the verb table.
std::vector<Verb> bench_verbs();
Verb step_verb();

struct BenchResult {
  nlohmann::json json;
  std::string text;  // ends with a newline
  int code = 0;      // exit code
};

BenchResult bench_link(const Arguments& arguments);
BenchResult bench_dram(const Arguments& arguments);
BenchResult bench_disk(const Arguments& arguments);
BenchResult bench_ops(const Arguments& arguments);
BenchResult bench_floor(const Arguments& arguments);
BenchResult bench_step(const Arguments& arguments);
BenchResult bench_suite(const Arguments& arguments);

// What the rows of a suite share.
struct BenchSession {
  double start_s = 0;  // start of the row, on the clock of base/clock.h
  Floors floors;
};
BenchResult bench_step(const Arguments& arguments, BenchSession& session);

// The model and configuration that the arguments name; also accepts "--seq-len 1024" for "--seq_len". With
// `one_micro_batch`, the step has at most one micro-batch if the size of a micro-batch is given but no batch.
enum class Shape { whole_step, one_micro_batch };
Session open_bench_target(const Arguments& arguments, Shape shape);

// "--gib 0.5" in bytes. Throws Error(bad_config) unless it is above 0.
int64_t gib_option(const std::string& text);

}  // namespace megatrain
