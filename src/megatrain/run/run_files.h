// A run directory as it is found later: what was trained, and how far it came.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/config/config.h"
#include "megatrain/hub/hash.h"
#include "megatrain/io/json.h"

namespace megatrain {

bool is_run_directory(const std::string& path);   // it has a config.resolved.yaml, or cannot be asked
bool is_demo_directory(const std::string& path);  // it has a hash.json of ours alone, as `megatrain demo` leaves it

// RUN/hash.json: of the run's last state, written when RUN/model is in its place.
struct RunHash {
  int64_t step = 0;
  nlohmann::json state;  // what to_json(StateHash) gave
  std::string model;     // the hash of the weights in RUN/model; empty: an earlier megatrain did not write it
};
void write_run_hash(const std::string& run_dir, const StateHash& state, const StateHash& model);
// None: the run is not over. Throws Error(bad_input) when the file is damaged.
std::optional<RunHash> read_run_hash(const std::string& run_dir);

// Of a run that goes on: hash.json becomes hash.former.json, so that the run is not over any more, and what it wrote to
// RUN/model stays known until it writes there again.
void set_run_hash_aside(const std::string& run_dir);
// RUN/model holds the weights that hash.former.json names. It is read through.
bool is_former_model(const std::string& run_dir);

// Reads RUN/model through. Throws Error(bad_input) when it is not what the run wrote.
void verify_run_model(const std::string& run_dir, const RunHash& hash);

// Reads a model directory through where it is RUN/model or RUN/best of a run that recorded its hash; others are taken
// as they are. Throws Error(bad_input) when it is not what the run wrote.
void verify_model_of_run(const std::string& directory);
// The hash of any model directory, compared in the same way.
StateHash hash_model_of_run(const std::string& directory);

struct RunFiles {
  std::string path;
  TrainConfig config;
  std::string model_config;         // the text of config.json; empty: neither the run nor its model has it any more
  std::string model_config_path;    // where it was found
  std::string tokenizer_directory;  // with the run's tokenizer files; empty: there are none, or none any more
  std::string chat_template;        // the file of data.template, where the tokenizer's directory lacks it
  std::string missing_tokenizer;    // where an earlier megatrain's run had its tokenizer files; empty: none is missing
  std::optional<RunHash> hash;      // of RUN/model; none: there is no such model
  std::optional<int64_t> complete_step;  // the last one of a run that is over; its model may be gone since
};

// Throws Error(bad_input) when the path is no run, and Error(io) when its configuration was emptied.
RunFiles read_run(const std::string& path);

// A sentence when the run is over and RUN/model is gone, with what can still be had; else empty.
std::string describe_lost_model(const RunFiles& run);

// What to do about a `model_config` that is damaged: the end of a sentence.
std::string model_config_advice(const RunFiles& run);

// Where `run.tokenizer_directory` is RUN/companions, or RUN/model in its place: throws Error(io) when its files are not
// as the run wrote them.
void check_companions(const RunFiles& run);

// The command that goes on with a run in its own place, quoted for a shell.
std::string resume_command(const std::string& run_dir);
// The same where it lies now: a copy's configuration names the place of the original.
std::string resume_command(const RunFiles& run);

}  // namespace megatrain
