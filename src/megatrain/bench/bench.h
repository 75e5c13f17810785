// The verbs behind `megatrain bench`. Each measures and gives back what to print, as JSON and for people.
#pragma once

#include <string>
#include <vector>

#include "megatrain/bench/bench_floor.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/train/session.h"

namespace megatrain {

// The rows of the command line's table that are this room's.
std::vector<Verb> bench_verbs();
Verb step_verb();

struct BenchResult {
  nlohmann::json json;
  std::string text;  // ends a line
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
  double start_s = 0;  // of the row, on the clock of base/clock.h
  Floors floors;
};
BenchResult bench_step(const Arguments& arguments, BenchSession& session);

// The model and configuration that the words name, with "--seq-len 1024" as people type it for "--seq_len".
// `one_micro_batch`: the step has no more than one when a micro-batch is given but no batch.
enum class Shape { whole_step, one_micro_batch };
Session open_bench_target(const Arguments& arguments, Shape shape);

// "--gib 0.5" in bytes. Throws Error(bad_config) unless it is above 0.
int64_t gib_option(const std::string& text);

}  // namespace megatrain
