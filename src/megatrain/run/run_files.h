// Reads a run directory after the fact: what was trained, and how far it came.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/config/config.h"
#include "megatrain/hub/hash.h"
#include "megatrain/io/json.h"

namespace megatrain {

bool is_run_directory(const std::string& path);   // has a config.resolved.yaml, or cannot be read
bool is_demo_directory(const std::string& path);  // has only a hash.json of ours, as `megatrain demo` leaves it

// RUN/hash.json: the hash of the run's final state, written once RUN/model is in place.
struct RunHash {
  int64_t step = 0;
  nlohmann::json state;  // what to_json(StateHash) gave
  std::string model;     // the hash of the weights in RUN/model; empty: an earlier megatrain did not write it
};
void write_run_hash(const std::string& run_dir, const StateHash& state, const StateHash& model);
// Returns nothing when the run is not complete. Throws Error(bad_input) when the file is damaged.
std::optional<RunHash> read_run_hash(const std::string& run_dir);

// For a run that continues: renames hash.json to hash.former.json. The run then no longer counts as complete, and the
// hash of RUN/model stays known until that is written again.
void set_run_hash_aside(const std::string& run_dir);
// Whether RUN/model holds the weights that hash.former.json names. Reads all of it.
bool is_former_model(const std::string& run_dir);

// Reads all of RUN/model. Throws Error(bad_input) when it is not what the run wrote.
void verify_run_model(const std::string& run_dir, const RunHash& hash);

// If the directory is RUN/model or RUN/best of a run that recorded its hash, reads all of it and throws
// Error(bad_input) when it is not what the run wrote. Other directories are accepted unchecked.
void verify_model_of_run(const std::string& directory);
// The hash of any model directory, checked in the same way.
StateHash hash_model_of_run(const std::string& directory);

// The run whose RUN/model or RUN/best this directory is; empty: it is of no run.
std::string run_of_model(const std::string& directory);

struct RunFiles {
  std::string path;
  TrainConfig config;
  std::string model_config;         // contents of config.json; empty: neither the run nor its model has it any more
  std::string model_config_path;    // where it was found
  std::string tokenizer_directory;  // with the run's tokenizer files; empty: there never were any, or they are gone
  std::string chat_template;        // the file of data.template, if the tokenizer's directory lacks it
  std::string missing_tokenizer;  // where a run of an earlier megatrain had its tokenizer files; empty: none is missing
  std::optional<RunHash> hash;    // of RUN/model; none: there is no such model
  std::optional<int64_t> complete_step;  // last step of a complete run, whose model may be gone by now
};

// Throws Error(bad_input) when the path is not a run, and Error(io) when its configuration is empty.
RunFiles read_run(const std::string& path);

// A sentence when the run is complete but RUN/model is gone, saying what is still available; otherwise empty.
std::string describe_lost_model(const RunFiles& run);

// What to do about a damaged `model_config`: the end of a sentence.
std::string model_config_advice(const RunFiles& run);

// If `run.tokenizer_directory` is RUN/companions, or RUN/model in its place: throws Error(io) when its files are not as
// the run wrote them.
void check_companions(const RunFiles& run);

// The command that resumes a run in its own directory, quoted for a shell.
std::string resume_command(const std::string& run_dir);
// The same for the path the run has now: the configuration of a copied run names the original's path.
std::string resume_command(const RunFiles& run);

}  // namespace megatrain
