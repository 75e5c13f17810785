// Finds records missing from the middle of a run's histories: metrics.jsonl, eval.jsonl, samples.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/config/config.h"

namespace megatrain {

// `steps` are those recorded in the history `name`, which should have one every `every` steps (0: none expected).
// Returns a sentence without its full stop that names the missing steps; empty if none is missing. Only steps between
// two pairs of neighbours `every` apart count as missing: a resume may change `every`, so the ends may have another
// spacing.
std::string describe_gaps(const std::string& name, std::vector<int64_t> steps, int64_t every);

// Warns once per history of the run that lacks steps. `config.eval.every` is in steps.
void warn_of_gaps(const TrainConfig& config);

}  // namespace megatrain
