#include "megatrain/run/run_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/hub/model_files.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/replace.h"
#include "megatrain/io/sealed_json.h"
#include "megatrain/model/model_source.h"
#include "megatrain/run/best_record.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/companion_record.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

std::string config_path(const std::string& run) { return run + "/config.resolved.yaml"; }
std::string hash_path(const std::string& run) { return run + "/hash.json"; }
std::string former_hash_path(const std::string& run) { return run + "/hash.former.json"; }

RunHash read_hash_file(const std::string& path) {
  nlohmann::json hash = read_json_file(path);
  const bool seal = hash.is_object() && (hash.contains("checksum") || hash.contains("model"));
  if (seal && !seal_holds(hash))
    fail_input(fmt::format("{} is damaged: its checksum does not match; the run's model is not affected", path));
  for (const char* key : {"step", "state", "weights", "tensors"}) {
    if (!hash.is_object() || !hash.contains(key)) fail_input(fmt::format("{} is damaged: it has no \"{}\"", path, key));
  }
  if (!hash.at("step").is_number_integer() || hash.at("step") < 0)
    fail_input(fmt::format("{} is damaged: its \"step\" is not an integer", path));
  RunHash run{.step = hash.at("step").get<int64_t>()};
  if (seal && hash.contains("model") && hash.at("model").is_string()) run.model = hash.at("model").get<std::string>();
  hash.erase("model");
  hash.erase("checksum");
  run.state = std::move(hash);
  return run;
}

void check_weights_of_model(const std::string& model, const RunHash& hash, const std::string& found) {
  if (hash.model.empty() || found == hash.model) return;
  fail_input(
      fmt::format("{} is damaged: the hash of its weights is {}, the run wrote {}; bring it back from a copy or, "
                  "where a checkpoint is left, with --resume",
                  model, found, hash.model));
}

}  // namespace

bool is_run_directory(const std::string& path) {
  struct stat status {};
  return ::lstat(config_path(path).c_str(), &status) == 0 ||
         (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG);
}

bool is_demo_directory(const std::string& path) {
  if (is_run_directory(path) || !exists(hash_path(path))) return false;
  try {
    return seal_holds(read_json_file(hash_path(path)));
  } catch (const Error&) {
    return false;  // a file of the same name that is not ours
  }
}

std::string run_of_model(const std::string& directory) {
  std::error_code none;
  const std::filesystem::path path = std::filesystem::weakly_canonical(directory, none);
  const std::string run_dir = path.parent_path().string();
  const bool named = path.filename() == "best" || path.filename() == "model";
  return named && exists(directory) && is_run_directory(run_dir) ? run_dir : "";
}

void write_run_hash(const std::string& run_dir, const StateHash& state, const StateHash& model) {
  nlohmann::json document = to_json(state);
  document["model"] = model.weights;
  write_text_file(hash_path(run_dir), json_text(sealed(document), 1) + "\n");
  std::error_code none;
  std::filesystem::remove(former_hash_path(run_dir), none);
}

std::optional<RunHash> read_run_hash(const std::string& run_dir) {
  const std::string path = hash_path(run_dir);
  if (!can_read(path)) return {};
  return read_hash_file(path);
}

void set_run_hash_aside(const std::string& run_dir) {
  if (exists(hash_path(run_dir))) rename_path(hash_path(run_dir), former_hash_path(run_dir));
}

bool is_former_model(const std::string& run_dir) {
  if (!exists(former_hash_path(run_dir)) || !exists(run_dir + "/model")) return false;
  try {
    const RunHash hash = read_hash_file(former_hash_path(run_dir));
    return !hash.model.empty() && hash_directory(run_dir + "/model").weights == hash.model;
  } catch (const Error&) {
    return false;  // one of them is damaged
  }
}

void verify_run_model(const std::string& run_dir, const RunHash& hash) {
  check_weights_of_model(run_dir + "/model", hash, hash_directory(run_dir + "/model").weights);
}

namespace {

void check_weights_of_best(const std::string& best, const BestRecord& record, const std::string& found) {
  if (found == record.weights) return;
  fail_input(
      fmt::format("{} is damaged: the hash of its weights is {}, the run wrote {}; bring it back from a copy, or "
                  "remove the best.json beside it to use weights that you changed yourself",
                  best, found, record.weights));
}

void find_tokenizer(RunFiles& run) {
  if (exists(companions_of(run.path)) || (has_companion_record(run.path) && !run.hash)) {
    run.tokenizer_directory = companions_of(run.path);
  } else if (run.hash) {
    run.tokenizer_directory = run.path + "/model";
  } else {  // a run of an earlier megatrain, which did not copy them
    const std::string source = companion_directory(run.config, run.config.model.path);
    (source.empty() || exists(source) ? run.tokenizer_directory : run.missing_tokenizer) = source;
    run.chat_template = run.config.data.chat_template;
  }
}

// What a run recorded about a model directory; both empty if nothing.
struct Recorded {
  std::optional<BestRecord> best;
  std::optional<RunHash> model;
};

Recorded recorded_of(const std::string& directory) {
  std::error_code none;
  const std::string run_dir = run_of_model(directory);
  Recorded recorded;
  if (run_dir.empty()) return recorded;
  const bool best = std::filesystem::weakly_canonical(directory, none).filename() == "best";
  if (best) recorded.best = read_best_record(run_dir);
  if (!best) recorded.model = read_run_hash(run_dir);
  return recorded;
}

// People may edit the files beside the weights on purpose, above all the chat template. They are used, with a warning.
void warn_of_companions(const std::string& directory) {
  std::error_code none;
  const std::string run_dir = std::filesystem::weakly_canonical(directory, none).parent_path().string();
  if (const std::string damage = model_companion_damage(run_dir, directory); !damage.empty())
    log_warn(fmt::format("{}, by the checksums in {}.json; {} has the run's own", damage, companions_of(run_dir),
                         companions_of(run_dir)));
}

StateHash hash_and_compare(const std::string& directory, const Recorded& recorded) {
  StateHash hash = hash_directory(directory);
  if (recorded.best) check_weights_of_best(directory, *recorded.best, hash.weights);
  if (recorded.model) check_weights_of_model(directory, *recorded.model, hash.weights);
  if (recorded.best || recorded.model) warn_of_companions(directory);
  return hash;
}

}  // namespace

StateHash hash_model_of_run(const std::string& directory) {
  return hash_and_compare(directory, recorded_of(directory));
}

void verify_model_of_run(const std::string& directory) {
  const Recorded recorded = recorded_of(directory);
  if (recorded.best || recorded.model) hash_and_compare(directory, recorded);
}

RunFiles read_run(const std::string& path) {
  constexpr int64_t kMaxConfigBytes = 16 * kMiB;
  if (!is_run_directory(path) || !can_read(config_path(path))) {
    fail_input(fmt::format("{} is not a run: {}; give the run_dir of a 'megatrain train'", path,
                           exists(path) ? "it has no config.resolved.yaml" : "it does not exist"));
  }
  RunFiles run;
  run.path = path.substr(0, path.find_last_not_of('/') + 1);
  if (is_blank(read_text_file(config_path(run.path), kMaxConfigBytes)))
    fail_io(fmt::format("{} is damaged: it is empty, and a run writes every key there; bring it back from a copy",
                        config_path(run.path)));
  run.config = load_config(config_path(run.path), {}, {.model = false, .data = false, .steps = false, .idle = true});
  run.hash = read_run_hash(run.path);
  if (run.hash) run.complete_step = run.hash->step;
  if (!is_model_directory(run.path + "/model")) run.hash.reset();
  const TrainConfig::Model& model = run.config.model;
  const std::string source = model.path.empty() ? "" : model.path + "/config.json";
  for (const std::string& file : {run.path + "/model_config.json", source, model.config}) {
    if (file.empty() || !can_read(file)) continue;
    run.model_config = read_text_file(file, kMaxConfigBytes);
    run.model_config_path = file;
    break;
  }
  find_tokenizer(run);
  return run;
}

std::string describe_lost_model(const RunFiles& run) {
  if (!run.complete_step || run.hash) return "";
  const auto checkpoints = list_checkpoints(run.path);
  std::string else_do;
  if (!checkpoints.empty() && checkpoints.back().first == *run.complete_step)
    else_do = fmt::format(", or write it again from its last checkpoint: megatrain export {} --out DIR",
                          shell_word(run.path));
  else if (!checkpoints.empty())
    else_do = fmt::format(", or train again from its last checkpoint, of step {}: {}", checkpoints.back().first,
                          resume_command(run));
  return fmt::format(
      "{} is a run that is complete, and its model of step {}, {}/model, is gone; bring it back from a copy{}",
      run.path, *run.complete_step, run.path, else_do);
}

std::string model_config_advice(const RunFiles& run) {
  const std::string copy = companions_of(run.path) + "/config.json";
  if (run.model_config_path != run.path + "/model_config.json" || !exists(copy))
    return "expected a Hugging Face config.json";
  return fmt::format("the run has a copy of it, {}, to put in its place", copy);
}

namespace {

// What to do about damaged companions apart from restoring them from a backup: the end of a sentence.
std::string companions_advice(const RunFiles& run) {
  const std::string folder = companions_of(run.path), copies = run.path + "/model";
  if (run.hash && run.tokenizer_directory == folder && model_companion_damage(run.path, copies).empty())
    return fmt::format("move {} away: {} has these files too, and they are then taken from there", folder, copies);
  const TrainConfig::Model& model = run.config.model;
  const std::string source = companion_directory(run.config, model.path);
  const std::string wanted = model.path.empty() ? model.config : model.path;
  const std::string rest = run.hash ? copies : exists(source) ? source : "";
  for (const std::string& needed : {source, wanted}) {  // both are needed by a resume
    if (needed.empty() || exists(needed)) continue;
    return fmt::format("bring {} back, which is gone too, and resume with '{}'; move {} and {}.json away to export {}",
                       needed, resume_command(run), folder, folder,
                       rest.empty() ? "only weights and config.json, to a Hugging Face directory"
                                    : fmt::format("with the files that {} has now", rest));
  }
  const std::string& from = source.empty() ? wanted : source;
  if (std::filesystem::is_directory(from) && !model_companion_damage(run.path, from).empty())
    return fmt::format(
        "bring back the files of {} as they were when the run began, and resume with '{}', which copies them; move {} "
        "and {}.json away to export with the files that {} has now",
        from, resume_command(run), folder, folder, rest.empty() ? from : rest);
  return fmt::format("resume with '{}', which copies the files from {} again", resume_command(run), from);
}

}  // namespace

void check_companions(const RunFiles& run) {
  const std::string& folder = run.tokenizer_directory;
  const bool own = folder == companions_of(run.path);
  if (!own && !run.hash) return;
  const std::string damage = own ? companion_damage(run.path) : model_companion_damage(run.path, folder);
  if (damage.empty()) return;
  const bool usable = own && has_recorded_companions(run.path);
  fail_io(fmt::format(
      "{}. Bring it back from a copy, or {}{}", damage, companions_advice(run),
      usable ? fmt::format("; remove {}.json to use files that you changed yourself", companions_of(run.path)) : ""));
}

std::string resume_command(const std::string& run_dir) {
  return fmt::format("megatrain train {} --resume", shell_word(run_dir + "/config.resolved.yaml"));
}

std::string resume_command(const RunFiles& run) {
  std::error_code none;
  const bool moved =
      std::filesystem::weakly_canonical(run.config.run_dir, none) != std::filesystem::weakly_canonical(run.path, none);
  return resume_command(run.path) + (moved ? " --run_dir=" + shell_word(run.path) : "");
}

}  // namespace megatrain
