// The GEMM algorithms of a run: timed once for each GPU model, library versions and shape, kept in a file of the user's
// cache directory so that a second run gives the bits of the first, and saved with the run so that it resumes exactly.
#pragma once

#include <functional>
#include <string>

#include "megatrain/io/json.h"
#include "megatrain/model/step_notes.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// What the templates call in a micro-batch of the configuration.
StepNotes notes_of(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity, bool accumulate);

// Fills identity.library and identity.algorithms, and has machine.ops use them. `saved` is the identity in the
// checkpoint that is resumed, or nullptr; its algorithms are taken when its library is this one, and one line says so
// when it is another. Takes device memory while it times and gives it back.
void choose_algorithms(const TrainConfig& config, const ModelConfig& model, Machine& machine,
                       const nlohmann::json* saved, RunIdentity& identity);

// One file of `directory` for each library. A file that cannot be read or written costs a log line, not the run.
class AlgorithmCache {
 public:
  AlgorithmCache(std::string directory, std::string library);

  const std::string& path() const { return path_; }
  AlgorithmTable load() const;
  void save(const AlgorithmTable& table) const;  // replaces the file as a whole

 private:
  std::string directory_, library_, path_;
};

// What `tune` chooses when it knows what the cache holds; what it chose anew is in the cache afterwards.
AlgorithmTable tune_with_cache(const AlgorithmCache& cache,
                               const std::function<AlgorithmTable(const AlgorithmTable& known)>& tune);

}  // namespace megatrain
