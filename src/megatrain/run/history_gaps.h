// Records that are missing in the middle of a run's history: metrics.jsonl, eval.jsonl, samples.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/config/config.h"

namespace megatrain {

// The history `name` of a run has records of `steps`, where one is expected every `every` steps (0: nothing is). A
// sentence without its end that names the missing steps; empty: none is missing. Steps count as missing between two
// pairs of neighbours that are `every` apart: what comes before or behind may be of another `every`, which a resume may
// change.
std::string describe_gaps(const std::string& name, std::vector<int64_t> steps, int64_t every);

// One warning for each history in RUN that lacks steps. `config.eval.every` counts steps.
void warn_of_gaps(const TrainConfig& config);

}  // namespace megatrain
