// The GEMM algorithms of a run. They are timed once per GPU model, library version and shape. A file in the user's
// cache directory keeps them, so that a second run gives the same bits as the first. They are also saved with the run,
// so that it resumes exactly.
#pragma once

#include <functional>
#include <string>

#include "megatrain/io/json.h"
#include "megatrain/model/step_notes.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// The op calls that the model's phases make in one micro-batch of the configuration.
StepNotes notes_of(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity, bool accumulate);

// Fills identity.library and identity.algorithms, and makes machine.ops use them. `saved` is the identity in the
// checkpoint being resumed, or nullptr. Its algorithms are used if its library is the current one; otherwise one log
// line says that the libraries differ. Allocates device memory while timing, and frees it again.
void choose_algorithms(const TrainConfig& config, const ModelConfig& model, Machine& machine,
                       const nlohmann::json* saved, RunIdentity& identity);

// One file in `directory` per library. A file that cannot be read or written costs a log line, not the run.
class AlgorithmCache {
 public:
  AlgorithmCache(std::string directory, std::string library);

  const std::string& path() const { return path_; }
  AlgorithmTable load() const;
  void save(const AlgorithmTable& table) const;  // replaces the whole file

 private:
  std::string directory_, library_, path_;
};

// Calls `tune` with the algorithms in the cache, and returns its choice. Newly chosen algorithms are added to the
// cache.
AlgorithmTable tune_with_cache(const AlgorithmCache& cache,
                               const std::function<AlgorithmTable(const AlgorithmTable& known)>& tune);

}  // namespace megatrain
