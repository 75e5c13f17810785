#include "megatrain/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/number_text.h"
#include "megatrain/model/files/base_files.h"
#include "megatrain/model/model.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/verify.h"

namespace megatrain {

namespace {

Schedule verified(const Workload& workload, const Plan& plan, StepMode mode) {
  Schedule schedule = build_schedule(workload, plan, mode);
  const std::vector<std::string> violations = verify(schedule, 1);
  if (!violations.empty()) fail_internal("the schedule is not sound: " + violations.front());
  return schedule;
}

std::vector<int64_t> homes(const Workload& workload) {
  std::vector<int64_t> list;
  for (int64_t record = 0; record < workload.record_count(); ++record) list.push_back(workload.home(record));
  return list;
}

// The tier of each record's planes, apart from those on disk.
std::vector<Tier> memory_of(const Plan& plan) {
  std::vector<Tier> list;
  for (const RecordPlan& record : plan.records) list.push_back(record.state == Tier::hbm ? Tier::hbm : Tier::host);
  return list;
}

// What reads the weights that the plan leaves in the model's files; nullptr if it leaves none.
std::unique_ptr<WeightSource> base_files(const Plan& plan, std::vector<LayerLayout> layouts,
                                         const DiskSettings& settings) {
  std::vector<bool> wanted;
  for (const RecordPlan& record : plan.records) wanted.push_back(record.state == Tier::files);
  if (std::ranges::count(wanted, true) == 0) return nullptr;
  ensure(!settings.base.empty(), "weights that stay in files have a directory");
  return std::make_unique<BaseFiles>(settings.base, std::move(layouts), wanted, settings.files);
}

}  // namespace

std::string StepReport::bound_by() const {
  std::map<std::string, double> others;
  for (const Lane lane : {Lane::h2d, Lane::d2h, Lane::update, Lane::disk_read, Lane::disk_write})
    others[lane_name(lane)] = lanes.busy[static_cast<size_t>(lane)];
  // the link's other copies, counted as in the estimate
  others[lane_name(Lane::h2d)] += lanes.busy[static_cast<size_t>(Lane::visit_in)];
  others[lane_name(Lane::d2h)] += lanes.busy[static_cast<size_t>(Lane::collect)];
  return bounding_lane(own_seconds(), lanes.busy[static_cast<size_t>(Lane::compute)], others);
}

void StepReport::add_pause(double pause_s, const std::string& what) {
  paused_s = std::clamp(pause_s, 0.0, seconds);
  paused_for = what;
  if (stall.seconds < 2 * paused_s) stall = {.seconds = paused_s, .cause = what};  // in the gap between steps
}

Trainer::Trainer(Machine& machine, const ModelConfig& model, const RunIdentity& identity, const TensorTypes& stored,
                 const OpsShape& shape, const Workload& workload, const Plan& plan, int update_threads)
    : Trainer(machine,
              make_model(model, model_shape(identity, shape.longest_document, workload.experts_per_record),
                         identity.trained, stored),
              shape, workload, plan, update_threads) {}

Trainer::Trainer(Machine& machine, Model model, const OpsShape& shape, const Workload& workload, const Plan& plan,
                 int update_threads)
    : machine_(machine),
      workload_(workload),
      model_(std::move(model)),
      disk_(workload, plan, machine.disk, base_files(plan, model_.layouts(), machine.disk)),
      records_(make_records(*machine.device, model_.layouts(), memory_of(plan), disk_.planes(), homes(workload))),
      memory_(*machine.device, workload, plan, records_),
      updater_(records_, workload.tables(), team_size(update_threads)),
      program_(model_, *machine.ops, memory_.workload(), memory_.plan(), updater_,
               memory_.at<int32_t>({ResourceKind::staged_inputs})),
      plan_(plan),
      lanes_(*machine.device),
      training_(std::make_unique<Pipeline>(*machine.device, lanes_, verified(workload, plan, StepMode::train), memory_,
                                           records_, disk_, program_)) {
  machine.ops->reserve(shape);
  machine.ops->prepare(shape);
  const std::vector<float> tables = model_.make_tables();
  lanes_.stream(Lane::h2d).copy(memory_.address({ResourceKind::rope_table}), tables.data(),
                                tables.size() * sizeof(float));
  lanes_.stream(Lane::h2d).synchronize();
}

StepReport Trainer::run(Pipeline& pipeline, const Batch& batch, const OptimStep& optim) {
  if (last_report_s_ == 0) last_report_s_ = now_s();
  const StepBytes bytes = program_.prepare(batch, pipeline.next_sequence(), optim);
  {
    const auto watched = watching(pipeline);
    pipeline.issue(bytes);
    pipeline.wait_report();
  }
  const std::span<const double> squares = memory_.host_squares();
  StepReport report;
  report.loss = memory_.host_loss() / static_cast<double>(batch.trained);
  report.correct = memory_.host_correct();
  report.tokens = batch.tokens;
  report.trained_tokens = batch.trained;
  if (pipeline.schedule().training) {
    report.grad_norm = gradient_norm(squares);
    report.clip_factor = clip_factor(squares, optim.clip);
    report.router = router_figures(workload_, memory_.host_router_counts(), model_.config.experts.chosen);
  }
  report.lanes = pipeline.lane_seconds();
  report.stall = pipeline.longest_stall();
  report.h2d_bytes = pipeline.h2d_bytes();
  report.d2h_bytes = pipeline.d2h_bytes();
  report.disk_read_bytes = pipeline.disk_read_bytes();
  report.disk_write_bytes = pipeline.disk_write_bytes();
  const double now = now_s();
  report.seconds = now - last_report_s_;
  last_report_s_ = now;
  if (!pipeline.schedule().training) {
    evaluated_s_ += report.seconds;
  } else if (const double evaluated_s = std::exchange(evaluated_s_, 0); report.stall.seconds > evaluated_s) {
    report.stall.seconds -= evaluated_s;  // the longest stall was between the steps and has the evaluations in it
  }
  return report;
}

StepReport Trainer::step(const Batch& batch, const OptimStep& optim) {
  if (trace_) machine_.device->mark_clock();
  last_step_ = optim.adamw.t;
  const StepReport report = run(*training_, batch, optim);
  if (trace_) trace_->add(optim.adamw.t, training_->spans());
  if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm)) {
    drain();
    const std::string layer = first_bad_gradient(workload_, memory_.host_squares());
    throw NonFiniteLoss(
        fmt::format("step {}: loss is {} and the gradient norm {}: not finite{}. {}", optim.adamw.t,
                    number_text(report.loss), number_text(report.grad_norm),
                    layer.empty() ? "" : ", in backward from " + layer + " on",
                    optim.clip > 0 ? "This step changed no weight; lower optim.lr or look at this step's data"
                                   : "Without clipping some layers were already updated, so this state is not saved; "
                                     "lower optim.lr or look at this step's data"),
        documents_with_bad_losses(batch));
  }
  if (const auto update = updater_.not_finite()) fail_not_finite(*update);
  for (const int32_t mark : memory_.host_not_finite()) {
    if (mark != 0) fail_not_finite({.record = mark - 1, .step = optim.adamw.t - 1});
  }
  return report;
}

std::vector<DocumentAt> Trainer::documents_with_bad_losses(const Batch& batch) {
  std::vector<float> losses;
  for (size_t m = 0; m < batch.micro_batches.size(); ++m) {
    std::vector<float> own(batch.micro_batches[m].tokens.size());
    machine_.device->copy_now(own.data(), memory_.address({ResourceKind::losses, 0, static_cast<int64_t>(m)}),
                              own.size() * sizeof(float));
    losses.insert(losses.end(), own.begin(), own.end());
  }
  return documents_not_finite(batch, losses);
}

void Trainer::fail_not_finite(const NotFinite& update) {
  drain();
  const std::string what = not_finite_in(records_[static_cast<size_t>(update.record)]);
  fail(ExitCode::non_finite,
       fmt::format("step {}: the update made {} infinite or NaN{}, so this state is not saved; lower "
                   "optim.lr",
                   update.step, record_name(workload_, update.record), what.empty() ? "" : ": " + what));
}

void Trainer::watch(const StallLimits& limits, std::function<void(const std::string&)> end) {
  watch_ = std::make_unique<StallWatch>(limits, std::move(end));
}

std::unique_ptr<StallWatch::Watching> Trainer::watching(const Pipeline& pipeline) {
  return watch_ ? std::make_unique<StallWatch::Watching>(*watch_, pipeline) : nullptr;
}

StepReport Trainer::evaluate(const Batch& batch) {
  drain();
  if (!evaluation_) {
    evaluation_ = std::make_unique<Pipeline>(*machine_.device, lanes_, verified(workload_, plan_, StepMode::evaluate),
                                             memory_, records_, disk_, program_);
  }
  const StepReport report = run(*evaluation_, batch, {.adamw = {.t = 0}});
  drain();
  if (!std::isfinite(report.loss))
    throw NonFiniteLoss(fmt::format("the loss of an evaluation is {}: not finite", number_text(report.loss)),
                        documents_with_bad_losses(batch));
  return report;
}

void Trainer::drain() {
  const auto watched = watching(*training_);
  lanes_.drain();
  for (const int64_t table : workload_.tables())
    updater_.settle(table, memory_.planes({ResourceKind::record_state, table}, table));
}

std::span<std::byte> Trainer::lend() {
  drain();
  return memory_.idle();
}

void Trainer::settle() {
  drain();
  if (const auto update = updater_.not_finite()) fail_not_finite(*update);
  const int64_t next = training_->next_sequence();
  for (const int64_t back : {2, 1}) {
    if (next < back) continue;
    for (int64_t lane = 0; lane < plan_.update_lanes(); ++lane) {
      int32_t mark = 0;
      machine_.device->copy_now(&mark, memory_.address(in_step({ResourceKind::not_finite, lane}, next - back)),
                                sizeof(mark));
      if (mark != 0) fail_not_finite({.record = mark - 1, .step = last_step_ - back + 1});
    }
  }
  if (updater_.torn())
    fail(ExitCode::non_finite,
         fmt::format("step {}: a gradient was not finite and some layers were already updated, so "
                     "this state is not saved; lower optim.lr or look at this step's data",
                     last_step_));
}

void Trainer::device_gradients(const Updater::Observer& look) {
  drain();
  for (const Action& action : training_->schedule().actions) {
    if (action.kind != ActionKind::update_on_device) continue;
    const std::vector<int32_t>& touched = program_.touched(training_->next_sequence() - 1);
    const RecordWork& record = workload_.record(action.record);
    const bool rows = workload_.by_rows(action.record);
    const int64_t count = rows ? std::ssize(touched) * record.row_width : record.trained;
    ensure(workload_.gradients_stay, "gradients on the device are read of a run that keeps them");
    std::vector<float> sum(static_cast<size_t>(count));
    machine_.device->copy_now(sum.data(), memory_.address(action.at(Operand::sum)), sum.size() * sizeof(float));
    std::vector<bf16> rounded;
    if (record.dtype == DType::bf16) {
      rounded.resize(sum.size());
      std::transform(sum.begin(), sum.end(), rounded.begin(), [](float x) { return to_bf16(x); });
    }
    look(action.record, {.data = rounded.empty() ? reinterpret_cast<const std::byte*>(sum.data())
                                                 : reinterpret_cast<const std::byte*>(rounded.data()),
                         .rows = rows ? &touched : nullptr});
  }
}

}  // namespace megatrain
