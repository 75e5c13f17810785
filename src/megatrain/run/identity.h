// What a checkpoint records about its run, and whether another run may resume from it.
#pragma once

#include <string>
#include <vector>

#include "megatrain/data/batch.h"
#include "megatrain/io/json.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// Everything that decides the bits of the remaining steps: keys, the model's fields, fingerprints of the data, and
// under "settings" what a user may change at a resume. `config.steps` is the resolved number, after epochs or tokens
// were converted. `data` and `eval` may be null. GEMM algorithms are not included; add_algorithms() adds them.
nlohmann::ordered_json identity_json(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity,
                                     const BatchSource* data, const BatchSource* eval = nullptr);

// Adds what may differ on another machine. A run that differs here resumes, but not bit for bit.
void add_algorithms(const RunIdentity& identity, nlohmann::ordered_json& json);

// Throws Error(bad_config) when `now` would not continue the run that `saved` describes. The message has the field,
// both values and what to do. One log line each reports changed optimizer settings, a changed run length, and
// differences that do not affect training. One line reports all that `saved` lacks because an earlier version wrote it.
//
// `order` is the file of data.order, if there is one; entries may have been appended to it. `data` are the changed data
// keys, which the message names instead of fingerprints; empty if there are none or they are unknown. `base` is the
// base of adapters as the user named it; empty if its weights are random.
struct KeyChange {
  std::string key, before, now;
};
void check_identity(const nlohmann::json& saved, const nlohmann::ordered_json& now, const std::string& checkpoint,
                    const std::string& order = "", const std::vector<KeyChange>& data = {},
                    const std::string& base = "");

// The keys which select, cut or order samples and whose values differ from those of the run in `run_dir`.
std::vector<KeyChange> changed_data_keys(const std::string& run_dir, const TrainConfig& now);

}  // namespace megatrain
