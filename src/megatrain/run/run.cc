#include "megatrain/run/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shortage.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work.h"
#include "megatrain/chat/builtin_templates.h"
#include "megatrain/data/open_data.h"
#include "megatrain/host/memory.h"
#include "megatrain/hub/companions.h"
#include "megatrain/hub/export.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/lies_in.h"
#include "megatrain/model/family.h"
#include "megatrain/model/files/kept_tensors.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/trained/adapter_checks.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/run/best_model.h"
#include "megatrain/run/best_record.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/companion_record.h"
#include "megatrain/run/disk_need.h"
#include "megatrain/run/divergence.h"
#include "megatrain/run/evaluations.h"
#include "megatrain/run/history_gaps.h"
#include "megatrain/run/identity.h"
#include "megatrain/run/live_file.h"
#include "megatrain/run/run_directory.h"
#include "megatrain/run/run_files.h"
#include "megatrain/run/run_log.h"
#include "megatrain/run/samples.h"
#include "megatrain/run/trackers.h"
#include "megatrain/train/gradient_dump.h"
#include "megatrain/train/model_loss.h"
#include "megatrain/train/optim_settings.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Training from a model inside the run directory is refused: the directory may be moved aside, and its model is
// replaced at the end.
void check_model_outside(const std::string& model, const TrainConfig& config) {
  if (model.empty()) return;
  std::error_code code;
  if (lies_in(fs::weakly_canonical(model, code), fs::weakly_canonical(config.run_dir, code))) {
    fail_config(
        fmt::format("{} {} is inside {} {}, where this run will write its own model; choose another --run_dir=DIR",
                    config.names("model.path"), model, config.names("run_dir"), config.run_dir));
  }
}

// Files that the run reads or keeps by name; they may be inside its directory.
std::vector<std::string> named_files(const TrainConfig& config) {
  const TrainConfig::Data& data = config.data;
  std::vector<std::string> files = {data.tokens,         data.documents,         data.labels,        data.order,
                                    data.info,           data.tokenizer,         data.chat_template, data.cache,
                                    config.model.config, config.memory.nvme_path};
  for (const std::vector<DatasetChoice>* choices : {&data.train, &data.eval})
    for (const DatasetChoice& choice : *choices) files.push_back(choice.path);
  return files;
}

class Run {
 public:
  Run(const TrainConfig& given, const RunHooks& hooks)
      : given_(given),
        config_(given),
        hooks_(hooks),
        directory_(given.run_dir, given.resume, named_files(given)),
        checkpoints_(given.run_dir, std::max<int64_t>(given.checkpoint.keep, 1)),
        source_(read_model_source(given)) {
    check_source();
    say_parts();
    read_from_companions();
    check_companions();
    open_all_data();
    if (data_.stopped) return;
    if (data_.train) settle_steps();
    open_samples();
    schedule_ = learning_rate_of(config_);
    check_schedule(schedule_);
    session_.emplace(config_, source_);
    if (samples_) session_->count_prompts(samples_->longest_prompt());
    say_router_losses();
    find_checkpoint();
    choose_algorithms();  // before anything else allocates device memory
    open_trainer();
    fill();
    if (hooks.on_stall) watch_for_stalls();
  }

  // Rejects weights that cannot be loaded before anything is planned or allocated for them.
  void check_source() const {
    check_model_outside(source_.directory, config_);
    check_disk(config_);
    check_device(config_.device);  // before hours of tokenising
    if (config_.adapter.rank > 0 && source_.directory.empty())
      log_warn(
          "the base of the adapters has random weights, which no file holds: what is trained can be resumed, but "
          "nothing "
          "else can use it. Give model.path for a base that can be loaded again");
    warn_of_peft();
    if ((config_.resume && config_.adapter.rank == 0) || source_.directory.empty()) return;
    check_weights(source_.directory, source_.config);
    verify_model_of_run(source_.directory);
    if (!config_.resume && !config_.model.adapter.empty()) verify_model_of_run(config_.model.adapter);
  }

  void say_parts() const {
    const std::string& whole = source_.config.part_of;
    if (whole.empty() || source_.directory.empty()) return;
    const KeptTensors others(source_.directory, source_.config);
    const std::string kept = others.description();
    log_info(fmt::format("{} is a {}: its text part, {}, is trained{}", source_.directory, whole,
                         source_.config.architecture,
                         kept.empty()       ? ""
                         : !keeps_tensors() ? fmt::format("; {} are not", kept)
                                            : fmt::format("; {} are kept as they are", kept)));
    if (others.has_prediction_layers() && keeps_tensors())
      log_warn(
          "the layers of multi-token prediction (mtp) are kept as they were, and do not fit the trained weights: a "
          "server that drafts tokens with them has fewer accepted, or train them elsewhere");
  }

  void warn_of_peft() const {
    const AdapterRules rules = adapter_rules(config_.adapter, !config_.model.adapter.empty());
    if (!rules.any()) return;
    const Family& family = family_of(source_.config);
    const std::string otherwise = unlike_peft(rules, model_layouts(source_.config, DType::bf16, {.adapter = rules}),
                                              family.peft_joins_experts, family.peft_refuses);
    if (!otherwise.empty()) log_warn(otherwise);
  }

  void open_all_data() {
    const bool by_data = config_.epochs > 0 || config_.tokens > 0;
    const DiskNeed known = disk_need(config_, source_.config, source_.types,
                                     by_data ? std::nullopt : std::optional<int64_t>(config_.steps));
    check_disk_need(known);
    const auto room = [&](int64_t bytes) {
      DiskNeed all = known;
      all.parts.push_back(token_cache_part(config_, bytes));
      check_disk_need(all);
    };
    if (config_.steps > 0 || by_data) data_ = open_data(config_, source_, hooks_.stop, room);
  }

  void open_samples() {
    const std::string& chosen = config_.data.chat_template;
    if (config_.sample.every > 0 && !data_.text) data_.text = open_text(config_, source_.directory);
    if (!chosen.empty()) chat_template_ = data_.text ? data_.text->replaced_template : read_template(chosen);
    if (config_.sample.every <= 0) return;
    samples_.emplace(path("samples.jsonl"), config_.sample,
                     adapter_rules(config_.adapter, !config_.model.adapter.empty()), source_.config, *data_.text);
  }

  void say_router_losses() const {
    if (const RouterLosses losses = router_losses(config_, source_.config); losses.from_model)
      log_info(fmt::format(
          "{}, so the loss that balances the experts is added, times the 'router_aux_loss_coef' of "
          "config.json, {}; moe.aux_loss: 0 trains without it",
          config_.moe.aux_loss_of_model ? "moe.aux_loss is model" : "config.json: 'output_router_logits' is true",
          losses.aux));
  }

  // Finds the checkpoint to resume from.
  void find_checkpoint() {
    if (config_.resume) checkpoint_ = checkpoints_.newest();
    identity_json_ = identity_json(config_, source_.config, session_->identity(), data_.train.get(), data_.eval.get());
    if (checkpoint_)
      check_identity(checkpoint_->identity, identity_json_, checkpoint_->path, config_.data.order,
                     changed_data_keys(config_.run_dir, given_), config_.model.path);
    if (config_.resume && !checkpoint_) {
      log_info(fmt::format("no checkpoint in {}: starting from the beginning", config_.run_dir));
      directory_.start_over();
    }
    if (checkpoint_ && config_.steps < checkpoint_->step)
      fail_config(
          fmt::format("{} is of step {}, this run has {}: it has done more already; give at least --steps={}, or "
                      "start again without --resume, which moves that run aside",
                      checkpoint_->path, checkpoint_->step, counted(config_.steps, "step"), checkpoint_->step));
    if (checkpoint_) warn_of_past_steps();
  }

  void choose_algorithms() {
    const Work choosing("choosing matmul algorithms");
    session_->choose_algorithms(checkpoint_ ? &checkpoint_->identity : nullptr);
  }

  void open_trainer() {
    add_algorithms(session_->identity(), identity_json_);
    std::vector<std::string> notes;
    const Workload& workload = session_->workload();
    const Plan& plan = session_->plan(&notes);
    plan_json_ = plan_to_json(workload, plan);
    memory_json_ = memory_to_json(memory_need(workload, plan));
    check_room_on_disk(memory_need(workload, plan).disk_bytes());
    const Device& device = session_->device();
    if (device.kind() == DeviceKind::cuda)  // the expected time of the first step
      step_s_ = estimate(workload, plan, session_->profile()).step_s;
    const std::string trained = workload.trained_parameters == workload.parameters
                                    ? ""
                                    : fmt::format(" ({} trained)", format_count(workload.trained_parameters));
    log_info(fmt::format("{}: {}{}, {} tokens a step on {}; {}", source_.config.architecture,
                         describe_parameters(workload), trained, workload.tokens(), device.name(),
                         describe(workload.state)));
    for (const std::string& note : notes) log_info("plan: " + note);
    trainer_ = &session_->trainer();
    if (const std::string disk = trainer_->disk().description(); !disk.empty()) log_info(disk);
  }

  void watch_for_stalls() {
    StallLimits limits;  // defaults for a GPU; on a slow CPU an action may take longer
    if (session_->device().kind() == DeviceKind::cpu) limits.end_s = std::numeric_limits<double>::infinity();
    trainer_->watch(limits, [this](const std::string& why) {
      const std::string message = why + advice_after(ExitCode::stalled);
      if (live_) live_->end({.state = "failed", .exit_code = static_cast<int>(ExitCode::stalled), .message = message});
      hooks_.on_stall(message);
    });
  }

  // If data.tokenizer is gone, a resumed run reads its own copy. With a model.path this does not apply: the copy is
  // then of the model's files. Nor does it without a checkpoint: such a run is moved aside together with its copy.
  void read_from_companions() {
    if (!config_.resume) return;
    refuse_companions_file();
    const std::string kept = companions_of(config_.run_dir);
    std::string& path = config_.data.tokenizer;
    std::error_code none;
    if (!source_.directory.empty() || path.empty() || fs::exists(path, none) || !fs::is_directory(kept, none)) return;
    if (list_checkpoints(config_.run_dir).empty()) return;
    if (const std::string damage = companion_damage(config_.run_dir); !damage.empty()) fail_both_gone(damage);
    log_info(fmt::format("{} {} is gone; the run continues with its own copy, {}", config_.names("data.tokenizer"),
                         path, kept));
    path = kept;
  }

  [[noreturn]] void fail_both_gone(const std::string& damage) const {
    fail_io(fmt::format("{}, and {} is gone too; bring one of them back from a copy", damage,
                        companion_directory(given_, source_.directory)));
  }

  void refuse_companions_file() const {
    const std::string kept = companions_of(config_.run_dir);
    std::error_code none;
    if (fs::exists(kept, none) && !fs::is_directory(kept, none))
      fail_io(fmt::format("{}; move it away, and the run makes the folder again", companion_damage(config_.run_dir)));
  }

  // Checks what the export will include, before anything is trained.
  void check_companions() const {
    const std::string from = companion_directory(config_, source_.directory);
    if (from.empty()) return;
    std::error_code none;
    if (!fs::is_directory(from, none)) fail_no_tokenizer();
    find_companions(from, config_.data.chat_template.empty());
  }

  [[noreturn]] void fail_no_tokenizer() const {
    fail_input(fmt::format("{} is {}, which is not there; give a directory with a tokenizer.json, or that file",
                           config_.names("data.tokenizer"), config_.data.tokenizer));
  }

  // Whether the run's models have tensors of a multimodal source that are not trained. Adapters do not.
  bool keeps_tensors() const {
    return !source_.config.part_of.empty() && !source_.directory.empty() && config_.adapter.rank == 0;
  }

  // Copies the companions into the run. If the originals are gone since the run began, or are the run's own copy, the
  // existing copy stays.
  void keep_companions() {
    const std::string from = companion_directory(config_, source_.directory), to = companions_of(config_.run_dir);
    refuse_companions_file();
    std::error_code none;
    const bool gone = !from.empty() && !fs::is_directory(from, none), own = fs::equivalent(from, to, none);
    if (gone && !fs::is_directory(to, none)) fail_no_tokenizer();
    if (!gone && !own) {
      remove_companion_record(config_.run_dir);
      std::vector<std::string> names = write_companions({.directory = to,
                                                         .config_json = source_.config_text,
                                                         .source_directory = from,
                                                         .chat_template = chat_template_});
      if (keeps_tensors()) {
        KeptTensors(source_.directory, source_.config).write_copy(to);
        names.push_back(kKeptFile);
      }
      write_companion_record(config_.run_dir, names);
      return;
    }
    if (const std::string damage = companion_damage(config_.run_dir); !damage.empty()) fail_both_gone(damage);
    if (gone) log_info(fmt::format("{} is gone; the run continues with its own copy of the tokenizer, {}", from, to));
  }

  // Resolves what depends on the data: the number of steps, and intervals given as parts of the run or of an epoch.
  void settle_steps() {
    config_.steps = steps_of_run(config_, *data_.train);
    const int64_t epoch = data_.train->epoch_steps();
    config_.checkpoint.every =
        steps_between(config_.checkpoint.every, config_.checkpoint.every_part, config_.steps, epoch);
    config_.eval.every = steps_between(config_.eval.every, config_.eval.every_part, config_.steps, epoch);
    for (const auto& [key, set] :
         {std::pair{"trace", &config_.trace}, {"dump.grads", &config_.dump.grads}, {"dump.state", &config_.dump.state}})
      if (!set->ranges.empty() && set->ranges.back().second > config_.steps)
        fail_config(fmt::format("{} names step {}, but the run has {}; name steps of the run", key,
                                set->ranges.back().second, counted(config_.steps, "step")));
    const int64_t warmup = warmup_steps(learning_rate_of(config_));
    if (given_.steps == 0 && warmup > config_.steps)
      log_warn(fmt::format("{} is {} steps and the run has {}: {} is never reached; lower it",
                           config_.names("optim.warmup"), warmup, config_.steps, config_.names("optim.lr")));
    if (const std::string unusual = unusual_learning_rate(config_); !unusual.empty()) log_warn(unusual);
  }

  // Warns of requested traces and dumps whose steps are already done and were not written.
  void warn_of_past_steps() const {
    const auto warn = [&](const char* key, const StepSet& set, const char* file) {
      if (set.ranges.empty() || set.ranges.back().second > checkpoint_->step) return;
      const int64_t last = set.ranges.back().second;
      std::error_code none;
      if (fs::exists(path(fmt::format(fmt::runtime(file), last)), none)) return;
      log_warn(fmt::format("{} has no effect: it names step {}, but the run resumes after step {}; name later steps",
                           key, last, checkpoint_->step));
    };
    warn("trace", config_.trace, "trace.json");
    warn("dump.grads", config_.dump.grads, "grads-{}.safetensors");
    warn("dump.state", config_.dump.state, "state-{}.safetensors");
  }

  RunResult run() {
    result_.run_dir = config_.run_dir;
    if (data_.stopped) {
      result_.stopped_by = static_cast<int>(*hooks_.stop);
      log_info("stopped while tokenising; progress is kept; the next start continues from there");
      return result_;
    }
    result_.step = step_;
    if (stop_asked()) {
      result_.stopped_by = stop_asked();
      log_info("stopped before the first step: nothing was trained, so nothing is saved");
      return result_;
    }
    directory_.make();
    TrainConfig from_start = given_;
    from_start.resume = false;  // so that the file reproduces the whole run, however often it was resumed
    from_start.model.path = source_.directory;
    write_text_file(path("config.resolved.yaml"), resolved_yaml(from_start));
    if (!given_.translation.empty()) write_text_file(path("translation.txt"), given_.translation);
    write_text_file(path("model_config.json"), source_.config_text);
    write_text_file(path("plan.json"), json_text(plan_json_, 1) + "\n");
    write_text_file(path("memory.json"), json_text(memory_json_, 1) + "\n");
    write_text_file(path("identity.json"), json_text(identity_json_, 1) + "\n");
    keep_companions();
    if (config_.resume) set_run_hash_aside(config_.run_dir);
    log_ = std::make_unique<RunLog>(config_.run_dir, step_, config_.steps, config_.resume);
    live_.emplace(config_.run_dir, live_about(), [this] { return trainer_->running(); });
    for (const TrackCommand& track : track_commands(config_))
      log_info(fmt::format("to see this run in {}: {}", track.program, track.command));
    try {
      train();
    } catch (const Error& error) {
      const std::string advice = advice_after(error.code());
      std::string message = error.what();
      if (!advice.empty() && message.ends_with('.')) message.pop_back();
      message += advice;
      live_->end({.state = "failed", .exit_code = static_cast<int>(error.code()), .message = message});
      fail(error.code(), message);
    } catch (const std::exception& error) {
      const Error said = as_error(error);
      live_->end({.state = "failed", .exit_code = static_cast<int>(said.code()), .message = said.what()});
      throw;
    }
    if (const std::string lost = lost_files(); !lost.empty()) {
      live_->end({.state = "failed", .exit_code = static_cast<int>(ExitCode::io), .message = lost});
      fail_io(lost);
    }
    const int signal = result_.stopped_by;
    live_->end({.state = signal ? "stopped" : "complete", .exit_code = signal ? 128 + signal : 0});
    return result_;
  }

 private:
  // From the first step to the exported model, or to the checkpoint that a signal asked for.
  void train() {
    if (config_.resume) warn_of_gaps(config_);
    if (data_.eval) evaluations_.emplace(path("eval.jsonl"), config_.eval.patience);
    if (config_.resume && evaluations_ && config_.eval.keep_best) go_on_from_best();
    if (step_ == 0 && config_.dump.state.contains(0))
      save_state(path("state-0.safetensors"), 0, trainer_->records(), StateForm::fp32, threads());

    expect_save();
    if (step_ > 0) sample_and_evaluate();  // skipped if the stopped run already did it at this step
    Batch batch;
    while (!stop_asked() && step_ < config_.steps && !ended_early()) {
      pausing("the data", [&] { data_.train->load(step_, batch); });
      one_step(batch);
    }
    if (!stop_asked()) finish();
    if (result_.state_hash.empty()) stop();
  }

  // A sentence if files were removed while the run was using the directory, otherwise empty. Files written since then
  // exist, the others do not.
  std::string lost_files() const {
    directory_.check_in_place();
    std::vector<std::string> lost;
    std::error_code none;
    for (const char* name : {"config.resolved.yaml", "model_config.json", "identity.json", "metrics.jsonl"})
      if (!fs::exists(fs::symlink_status(path(name), none))) lost.push_back(name);
    if (lost.empty()) return "";
    return fmt::format("{} {} removed from {} while this run was using it: the run's history is incomplete. {}",
                       fmt::join(lost, ", "), lost.size() == 1 ? "was" : "were", config_.run_dir,
                       result_.stopped_by ? fmt::format("The checkpoint of step {} is saved", step_)
                                          : fmt::format("{} is complete", path("model")));
  }

  // How to continue once the cause of the error is fixed; the modules that throw it cannot know. For a stalled run it
  // reads no directory, since the disk may be what hangs.
  std::string advice_after(ExitCode code) const {
    const bool non_finite = code == ExitCode::non_finite, io = code == ExitCode::io;
    if (!non_finite && !io && code != ExitCode::stalled) return "";
    if (io && !directory_.in_place()) return "";  // check_in_place() already says how to continue
    const std::optional<int64_t> step = checkpoints_.last_step();
    if (step && sound_step_ && *step > *sound_step_)
      return fmt::format(
          ". Then move the checkpoints of steps after {} out of {}: the loss was about to rise. Resume with --resume",
          *sound_step_, path("checkpoints"));
    if (!step)
      return ". Then start again: there is no checkpoint to resume from yet (set checkpoint.every to save some)";
    return fmt::format(". Then resume from the checkpoint of step {} with {}", *step,
                       non_finite ? "--resume" : fmt::format("'{}'", resume_command(config_.run_dir)));
  }

  LiveAbout live_about() {
    const Workload& workload = session_->workload();
    const Plan& plan = session_->plan();
    const MemoryNeed need = memory_need(workload, plan);
    LiveAbout about{.step = step_,
                    .steps = config_.steps,
                    .hbm_planned = need.hbm_bytes(),
                    .host_planned = need.host_bytes(),
                    .disk_planned = need.disk_bytes(),
                    .hbm_limit = session_->device().memory_total()};
    const MachineProfile machine = session_->profile();
    if (machine.measured() || session_->device().kind() == DeviceKind::cuda) {
      const Estimate e = estimate(workload, plan, machine);
      about.floor = {{"machine", machine.name},
                     {"measured", machine.measured()},
                     {"step_s", least_seconds(workload, plan, machine)},
                     {"lanes",
                      {{"compute", e.compute_s},
                       {"h2d", e.h2d_s},
                       {"d2h", e.d2h_s},
                       {"update", e.update_s},
                       {"disk_read", e.disk_read_s},
                       {"disk_write", e.disk_write_s}}}};
    }
    return about;
  }

  // Runs an action between two steps; its time is reported with the next step.
  template <class Action>
  void pausing(const char* what, const Action& action) {
    const double start_s = now_s();
    action();
    pause_.add(now_s() - start_s, what);
  }

  int stop_asked() const { return hooks_.stop ? static_cast<int>(*hooks_.stop) : 0; }

  void stop() {
    result_.step = step_;
    result_.stopped_by = stop_asked();
    result_.resumable = steps_done_ > 0 || checkpoint_;
    if (steps_done_ > 0) save();
    const char* saved = steps_done_ > 0 ? "saved. Continue with --resume"
                        : checkpoint_   ? "the checkpoint it started from is still the newest. Continue with --resume"
                                        : "nothing is trained yet and nothing was saved";
    log_info(fmt::format("stopped by signal {} after step {}; {}", result_.stopped_by, step_, saved));
  }

  // Checks room for everything the run writes, now that its steps and its plan are known.
  void check_room_on_disk(int64_t scratch_bytes) const {
    const DiskNeed need = disk_need(config_, source_.config, source_.types, config_.steps, scratch_bytes);
    check_disk_need(need);
    if (!stop_fits(need, config_.run_dir))
      log_warn(
          fmt::format("{} has no room for a checkpoint of {} besides the files of the run: a stop signal could not "
                      "save one; free some space, or choose a run_dir on a larger disk",
                      config_.run_dir, format_bytes_up(need.checkpoint_bytes)));
  }

  // Announces what a stop signal will do while the run trains.
  void expect_save() {
    int64_t stored = 0;
    for (const TensorDeclaration& tensor : stored_tensors(trainer_->records())) stored += tensor.bytes();
    const std::string bytes = format_bytes(stored);
    phase_.become("the run", fmt::format("it then saves a checkpoint of {}{} and stops", bytes,
                                         save_s_ > 0 ? " (about " + format_duration(std::ceil(save_s_)) + ")" : ""));
  }

  std::string path(const std::string& name) const { return config_.run_dir + "/" + name; }

  // The path of a file that is about to be written.
  std::string own_path(const std::string& name) const {
    directory_.check_in_place();
    return path(name);
  }

  void fill() {
    if (!checkpoint_ || needs_base(trainer_->records())) types_ = session_->fill_weights(checkpoint_.has_value());
    if (checkpoint_) {
      const Checkpoint restored = checkpoints_.restore_newest(trainer_->records(), threads());
      if (restored.identity != checkpoint_->identity) check_fallback(restored);
      types_ = restored.types;
      step_ = restored.step;
    }
  }

  // The newest checkpoint was damaged, so an older one was restored, which may have another identity. Other libraries
  // or GEMM algorithms only get a warning; any other difference is refused.
  void check_fallback(const Checkpoint& restored) {
    nlohmann::ordered_json decided = identity_json_;
    decided.erase("library");
    decided.erase("algorithms");
    check_identity(restored.identity, decided, restored.path, config_.data.order, {}, config_.model.path);
    if (restored.identity.value("library", json()) != json(identity_json_.at("library")) ||
        restored.identity.value("algorithms", json()) != json(identity_json_.at("algorithms")))
      log_warn(
          fmt::format("{} was made on another machine or with other libraries: the continuation cannot be "
                      "bit-exact",
                      restored.path));
  }

  void one_step(const Batch& batch) {
    const int64_t step = step_ + 1;
    const double lr = learning_rate(schedule_, step);
    const OptimStep optim = optim_step_of(config_, lr, step);
    std::unique_ptr<GradientDump> dump;
    if (config_.dump.grads.contains(step)) {
      dump = std::make_unique<GradientDump>(own_path(fmt::format("grads-{}.safetensors", step)), step,
                                            trainer_->records());
      trainer_->drain();
      trainer_->updater().observe(
          [&dump](int64_t record, const HostGradient& gradient) { dump->record(record, gradient); });
    }
    trainer_->trace_into(config_.trace.contains(step) ? &trace_ : nullptr);
    const bool live_lanes = live_->wants_lanes();
    if (log_->shows_lanes(step) || live_lanes) session_->device().mark_clock();
    std::optional<Work> work(std::in_place, fmt::format("step {}", step), WorkOptions{.expected_s = step_s_});
    StepMetrics metrics{.step = step,
                        .steps = config_.steps,
                        .lr = lr,
                        .epoch = data_.train->epochs_done(step),
                        .report = naming_documents(*data_.train, step_, [&] { return trainer_->step(batch, optim); })};
    work.reset();
    if (steps_done_ > 0)
      metrics.report.add_pause(pause_.seconds, pause_.longest_for);  // the first step's time already includes it
    pause_ = {};
    step_ = step;
    ++steps_done_;
    step_s_ = metrics.report.seconds;
    if (log_->shows_lanes(step)) {
      directory_.check_in_place();
      log_->lanes(step, trainer_->pipeline().spans());
    }
    if (live_lanes) live_->lanes(step, metrics.report.seconds, trainer_->pipeline().spans());
    if (dump) {
      pausing("the dump", [&] {
        trainer_->device_gradients(
            [&dump](int64_t record, const HostGradient& gradient) { dump->record(record, gradient); });
        trainer_->updater().observe({});
        dump->finish();
      });
    }
    const int64_t hbm_used = session_->device().memory_used();
    metrics.hbm_peak = std::max(session_->device().ledger().peak_bytes(), hbm_used);
    metrics.host_peak = host_memory_peak();
    log_->step(metrics);
    live_->step(metrics, std::max(session_->device().ledger().bytes(), hbm_used));
    result_.last_loss = metrics.report.loss;
    if (hooks_.on_step) hooks_.on_step(metrics);
    look_for_divergence(metrics.report.loss);
    if (config_.trace.contains(step)) write_text_file(own_path("trace.json"), trace_.json());
    if (config_.dump.state.contains(step)) {
      trainer_->settle();
      pausing("the dump", [&] {
        save_state(own_path(fmt::format("state-{}.safetensors", step)), step, trainer_->records(), StateForm::fp32,
                   threads());
      });
    }
    sample_and_evaluate();
    if (stop_asked()) return;  // the caller then saves
    const bool wished = hooks_.take_save_wish && hooks_.take_save_wish();
    const int64_t every = config_.checkpoint.every;
    const bool last = step == config_.steps && saves_last_step(config_);
    if (wished || last || (every > 0 && step % every == 0)) save();
    if (wished) log_info(fmt::format("saved a checkpoint of step {}, as SIGUSR1 asked; the run continues", step));
  }

  // Warns, or with guard: stop ends the run.
  void look_for_divergence(double loss) {
    if (!divergence_.look(loss)) return;
    const std::string clip = config_.optim.clip > 0
                                 ? fmt::format("lower {} ({:g} now)", config_.names("optim.clip"), config_.optim.clip)
                                 : fmt::format("set {} (off now)", config_.names("optim.clip"));
    const std::string change =
        fmt::format("lower {} ({:g} now) or {}", config_.names("optim.lr"), config_.optim.lr, clip);
    const std::string what = divergence_.sentence(step_, loss) + ": the run diverges";
    if (config_.guard != "stop")
      return log_warn(fmt::format("{}. Stop it, {}, and start again from a checkpoint before it", what, change));
    sound_step_ = std::max<int64_t>(step_ - divergence_.high_steps() - 1, 0);
    fail(ExitCode::non_finite, fmt::format("{}, and guard: stop ends it. To train further, {}", what, change));
  }

  // Samples and evaluations due after step_. A stop signal abandons them: nothing is written, and a resumed run does
  // them first.
  void sample_and_evaluate() {
    if (samples_ && step_ % config_.sample.every == 0 && !samples_->has(step_)) {
      directory_.check_in_place();
      pausing("the samples", [&] { samples_->write(step_, session_->machine(), *trainer_, hooks_.stop); });
    }
    if (evaluations_ && config_.eval.every > 0 && step_ % config_.eval.every == 0 && evaluations_->last_step() != step_)
      evaluate();
  }

  int threads() const { return static_cast<int>(config_.threads); }

  bool ended_early() {
    if (!evaluations_ || !evaluations_->exhausted()) return false;
    log_info(fmt::format("no lower evaluation loss than {:.4f} (step {}) in {} evaluations: the run ends here",
                         evaluations_->best_loss(), evaluations_->best_step(), config_.eval.patience));
    return true;
  }

  void evaluate() {
    constexpr double kForwardOfStep = 1.0 / 3;
    const LossOptions options{.what = fmt::format("the evaluation after step {}", step_),
                              .expected_s = step_s_ * kForwardOfStep * static_cast<double>(data_.eval->steps()),
                              .stop = hooks_.stop};
    std::optional<ModelLoss> measured;
    try {
      measured = mean_loss(*trainer_, *data_.eval, options);
    } catch (const Error& error) {
      if (error.code() == ExitCode::non_finite && steps_done_ > 0) save();  // the state itself is finite
      throw;
    }
    pause_ = {};  // the next step's time starts after the evaluation
    if (!measured) return;
    const auto [loss, trained] = *measured;
    const std::string note = note_on(loss);
    if (config_.eval.keep_best && (!best_ || loss < best_->loss)) write_best(loss);
    directory_.check_in_place();
    evaluations_->add({.step = step_, .loss = loss, .tokens = trained});
    const std::string rise = evaluations_->rise();
    log_->add_scalar("eval/loss", step_, loss);
    log_info(fmt::format("step {}: evaluation loss {:.4f}, perplexity {:.4g}, on {} tokens{}", step_, loss,
                         std::exp(loss), trained, note));
    if (!rise.empty()) log_warn(fmt::format("{}: {}", rise, advice_on_rise()));
  }

  std::string advice_on_rise() const {
    std::string advice = "more steps like these make the model worse on other data. ";
    advice += best_ ? fmt::format("{} is the model of step {}", best_->path, best_->step)
                    : fmt::format("{}: true would keep the best one", config_.names("eval.keep_best"));
    if (config_.eval.patience == 0) advice += fmt::format("; {} ends such a run", config_.names("eval.patience"));
    return advice;
  }

  // Appended to the evaluation's log line.
  std::string note_on(double loss) const {
    if (!evaluations_->is_lowest(loss))
      return fmt::format(" ({:.4f} above the lowest, {:.4f} at step {})", loss - evaluations_->best_loss(),
                         evaluations_->best_loss(), evaluations_->best_step());
    if (!best_ || loss <= best_->loss) return " (the lowest so far)";
    return fmt::format(" (the lowest since the run was resumed; {} stays, of step {}, loss {:.4f})", best_->path,
                       best_->step, best_->loss);
  }

  // best.json says what best/ holds. eval.jsonl does not, because a resume drops its later lines. A best model from a
  // step after the resumed one is still valid: it stays until another has a lower loss.
  void go_on_from_best() {
    best_ = resumed_best_model(config_.run_dir);
    if (best_ && !best_->data.empty() && best_->data != data_.eval->fingerprint()) {
      log_warn(
          fmt::format("{} was evaluated on other data than data.eval is now, so its loss {:.4f} (step {}) no "
                      "longer counts: the next evaluation writes its model there, and the former becomes "
                      "best.previous",
                      best_->path, best_->loss, best_->step));
      best_.reset();
    }
    own_best_ = best_.has_value();
    if (best_ && best_->step > step_)
      log_info(
          fmt::format("{} is of step {}, after the one that the run resumes from; it stays until an evaluation loss is "
                      "below its {:.4f}",
                      best_->path, best_->step, best_->loss));
  }

  // Called before the evaluation's line is written, so that a kill in between repeats the evaluation.
  void write_best(double loss) {
    trainer_->settle();
    pausing("the best model", [&] {
      if (!own_best_) {
        remove_best_record(config_.run_dir);
        keep_aside(own_path("best"), "its loss does not count in this run");
      }
      BestRecord record{.step = step_, .loss = loss, .weights = {}, .data = data_.eval->fingerprint()};
      write_model("best", own_best_, [&](const StateHash& hash) {
        record.weights = hash.weights;
        begin_best_record(config_.run_dir, record);
      });
      write_best_record(config_.run_dir, record);
    });
    best_ = {.path = path("best"), .step = step_, .loss = loss};
  }

  // Replaces what the run wrote there before. Anything else of that name is moved to another one.
  StateHash write_model(const std::string& name, bool& own, const ExportReady& ready = {}) {
    const std::string to = own_path(name);
    if (!own) keep_aside(to, "the run has no record of these weights");
    if (const std::string damage = companion_damage(config_.run_dir); !damage.empty()) {
      log_warn(fmt::format("{}; it was changed while the run was using it, and is written again", damage));
      if (steps_done_ > 0) save();  // so that nothing trained is lost if the source is gone too
      keep_companions();
    }
    StateHash hash = session_->export_model(to, types_, companions_of(config_.run_dir), ready);
    own = true;
    return hash;
  }

  void save() {
    if (checkpoints_.saved(step_)) return;
    directory_.check_in_place();
    trainer_->settle();
    log_info(fmt::format("saving a checkpoint of step {}", step_));
    const Work work(fmt::format("the checkpoint of step {}", step_), {.expected_s = save_s_, .then = "it then stops"});
    const double start_s = now_s();
    checkpoints_.save(step_, identity_json_, types_, trainer_->records(), threads());
    save_s_ = now_s() - start_s;
    pause_.add(save_s_, "the checkpoint");
    expect_save();
  }

  void finish() {
    trainer_->settle();
    if (evaluations_ && evaluations_->last_step() != step_) evaluate();
    if (stop_asked()) return;
    phase_.become("the end of the run", "the run is then complete");
    log_info(fmt::format("hashing the state and writing the model to {}", path("model")));
    const StateHash hash = hash_state(trainer_->records(), step_, threads());
    own_model_ = is_former_model(config_.run_dir);
    const StateHash model = write_model("model", own_model_);
    directory_.check_in_place();
    write_run_hash(config_.run_dir, hash, model);
    if (evaluations_) {
      result_.eval_loss = evaluations_->last_loss();
      result_.best_step = evaluations_->best_step();
    }
    result_.step = step_;
    result_.state_hash = hash.state;
    if (hooks_.take_save_wish && hooks_.take_save_wish()) save();
  }

  Work phase_{"starting the run", {.then = "nothing is trained yet, so it then stops without saving"}};
  // Time spent between steps since the last report.
  struct Pause {
    double seconds = 0, longest_s = 0;
    std::string longest_for;
    void add(double more_s, const char* what) {
      seconds += more_s;
      if (more_s <= longest_s) return;
      longest_s = more_s;
      longest_for = what;
    }
  };
  Pause pause_;
  const TrainConfig& given_;
  TrainConfig config_;  // with the resolved number of steps
  const RunHooks& hooks_;
  RunDirectory directory_;
  Checkpoints checkpoints_;
  ModelSource source_;
  LearningRate schedule_{};
  RunData data_;
  std::string chat_template_;  // from data.template; exported with the model
  std::optional<Evaluations> evaluations_;
  std::optional<BestModel> best_;  // what RUN/best holds
  std::optional<Samples> samples_;
  std::optional<Session> session_;
  nlohmann::ordered_json identity_json_;
  std::optional<Checkpoint> checkpoint_;
  json plan_json_, memory_json_;
  Trainer* trainer_ = nullptr;  // owned by the session
  TensorTypes types_;
  bool own_model_ = false, own_best_ = false;  // whether RUN/model and RUN/best were written by this run
  Trace trace_;
  DivergenceWatch divergence_{source_.config.vocab};
  std::optional<int64_t> sound_step_;  // after a divergence: the last step whose checkpoint can be trusted
  int64_t step_ = 0;
  int64_t steps_done_ = 0;          // by this process
  double step_s_ = 0, save_s_ = 0;  // of the last step and the last save
  std::unique_ptr<RunLog> log_;
  RunResult result_;
  std::optional<LiveFile> live_;  // last: its thread reads the trainer
};

}  // namespace

RunResult run_training(const TrainConfig& config, const RunHooks& hooks) { return Run(config, hooks).run(); }

}  // namespace megatrain
