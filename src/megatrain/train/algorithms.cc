#include "megatrain/train/algorithms.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/user_cache.h"
#include "megatrain/io/file.h"
#include "megatrain/hub/hash.h"
#include "megatrain/io/json_file.h"

namespace megatrain {

namespace fs = std::filesystem;
using nlohmann::json;

StepNotes notes_of(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity, bool accumulate) {
  return step_notes(model,
                    {.dtype = identity.dtype,
                     .sequences = config.micro_batch,
                     .seq_len = config.seq_len,
                     .mlp_chunk = identity.mlp_chunk,
                     .head_chunk = identity.head_chunk,
                     .accumulate = accumulate},
                    identity.trained);
}

AlgorithmCache::AlgorithmCache(std::string directory, std::string library)
    : directory_(std::move(directory)),
      library_(std::move(library)),
      path_(fmt::format("{}/gemm-{}.json", directory_, xxh3_128(library_.data(), library_.size()))) {}

AlgorithmTable AlgorithmCache::load() const {
  std::error_code none;
  if (!fs::exists(path_, none)) return {};
  try {
    const json file = read_json_file(path_);
    if (file.at("library") == library_) return file.at("algorithms").get<AlgorithmTable>();
  } catch (const std::exception& error) {
    log_warn(fmt::format("{} cannot be used: {}; GEMMs are timed again", path_, error.what()));
  }
  return {};
}

void AlgorithmCache::save(const AlgorithmTable& table) const {
  try {
    std::error_code code;
    fs::create_directories(directory_, code);
    write_text_file(path_, json{{"library", library_}, {"algorithms", table}}.dump(1) + "\n");
  } catch (const Error& error) {
    log_warn(
        fmt::format("the timed algorithms could not be saved: {}; the next run times them again and may differ in bits",
                    error.what()));
  }
}

AlgorithmTable tune_with_cache(const AlgorithmCache& cache,
                               const std::function<AlgorithmTable(const AlgorithmTable& known)>& tune) {
  AlgorithmTable all = cache.load();
  AlgorithmTable chosen;
  try {
    chosen = tune(all);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    log_warn(fmt::format("{}: {}; GEMMs are timed again", cache.path(), error.what()));
    all.clear();
    chosen = tune(all);
  }
  const size_t before = all.size();
  all.insert(chosen.begin(), chosen.end());
  if (all.size() > before) cache.save(all);
  return chosen;
}

void choose_algorithms(const TrainConfig& config, const ModelConfig& model, Machine& machine, const json* saved,
                       RunIdentity& identity) {
  identity.library = machine.ops->library();
  const std::string before = saved ? saved->value("library", "an unnamed library") : identity.library;
  if (before != identity.library)
    log_warn(fmt::format("the continuation cannot be bit-exact: {} became {}", before, identity.library));
  if (machine.device->kind() == DeviceKind::cpu) return;  // the CPU has one algorithm for all GEMMs

  const double start = now_s();
  const std::vector<OpNote> notes = notes_of(config, model, identity, true).recomputing();
  if (saved && before == identity.library) {
    identity.algorithms = machine.ops->tune(notes, saved->value("algorithms", AlgorithmTable()));
  } else {
    identity.algorithms = tune_with_cache(AlgorithmCache(user_cache_directory(), identity.library),
                                          [&](const AlgorithmTable& known) { return machine.ops->tune(notes, known); });
  }
  log_info(fmt::format("chose algorithms for {} GEMMs in {:.2f} s", identity.algorithms.size(), now_s() - start));
}

}  // namespace megatrain
