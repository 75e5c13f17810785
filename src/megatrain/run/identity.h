// What a checkpoint says of its run, and whether another run may go on from it.
#pragma once

#include <string>
#include <vector>

#include "megatrain/data/batch.h"
#include "megatrain/io/json.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// All that decides the bits of the remaining steps: the keys, the model's fields, fingerprints of the data, and under
// "settings" what a user may change on the way. `config.steps` is what epochs or tokens came to; `data` and `eval` may
// be null. The products' algorithms are not part of it: add_algorithms() adds them.
nlohmann::ordered_json identity_json(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity,
                                     const BatchSource* data, const BatchSource* eval = nullptr);

// What may be another on another machine: the run then goes on, but not bit for bit.
void add_algorithms(const RunIdentity& identity, nlohmann::ordered_json& json);

// Throws Error(bad_config) when `now` would not continue the run that `saved` describes: the message has the field,
// both values and what to do. A changed setting of the optimizer, the length of the run and what decides no step get a
// line of the log each; what `saved` does not hold, because an earlier version wrote it, gets one line together.
// `order` is the file of data.order, if there is one: it may have grown at its end. `data` are the keys of the data
// that differ, which the message names in place of the fingerprints; empty: none, or they are not known.
struct KeyChange {
  std::string key, before, now;
};
void check_identity(const nlohmann::json& saved, const nlohmann::ordered_json& now, const std::string& checkpoint,
                    const std::string& order = "", const std::vector<KeyChange>& data = {});

// The keys that choose, cut and order samples and that the configuration of the run in `run_dir` has otherwise.
std::vector<KeyChange> changed_data_keys(const std::string& run_dir, const TrainConfig& now);

}  // namespace megatrain
