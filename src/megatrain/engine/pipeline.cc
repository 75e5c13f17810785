#include "megatrain/engine/pipeline.h"

#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "megatrain/plan/describe.h"

namespace megatrain {

namespace {

// "update of layer 3" or "update of experts 1 to 8 of layer 3"; counted from 1
std::string describe(const Workload& w, const Action& action) {
  const std::string name = action_name(action.kind);
  return action.record < 0 ? name : fmt::format("{} of {}", name, describe_record(w, action.record));
}

}  // namespace

Lanes::Lanes(Device& device) {
  for (int i = 0; i < kLanes; ++i) {
    const Lane lane = static_cast<Lane>(i);
    const size_t at = static_cast<size_t>(i);
    if (is_host(lane)) {
      auto host = device.make_host_stream(lane_name(lane));
      hosts_[at] = host.get();
      owned_[at] = std::move(host);
    } else {
      owned_[at] = device.make_stream(lane_name(lane));
    }
    streams_[at] = owned_[at].get();
  }
}

namespace {

constexpr Lane kInOrder[] = {Lane::disk_read, Lane::gather, Lane::h2d,     Lane::compute, Lane::visit_in,
                             Lane::visit,     Lane::d2h,    Lane::collect, Lane::update,  Lane::disk_write};

}  // namespace

void Lanes::drain() {
  for (const Lane lane : kInOrder) stream(lane).synchronize();
}

void Lanes::stop() noexcept {
  for (const Lane lane : kInOrder) {
    try {
      stream(lane).synchronize();
    } catch (...) {  // already thrown when the lane was checked, or nothing checks it any more
    }
  }
}

Pipeline::Pipeline(Device& device, Lanes& lanes, Schedule schedule, EngineMemory& memory,
                   std::vector<LayerRecord>& records, DiskTier& disk, StepHandler& handler)
    : device_(device),
      lanes_(lanes),
      schedule_(std::move(schedule)),
      memory_(memory),
      records_(records),
      disk_(disk),
      handler_(handler) {
  for (auto& set : marks_) {
    for (const Action& action : schedule_.actions) {
      const auto make = [&] { return Lanes::is_host(action.lane) ? device.make_host_event() : device.make_event(); };
      set.push_back({make(), make()});
    }
  }
  while (schedule_.actions[report_].kind != ActionKind::report) ++report_;
}

// Calls copy(there, here, bytes) for each plane of a visiting record; only the trained part of weights and low bits.
template <class Copy>
void Pipeline::visit(const Action& a, const Operands& operands, const Copy& copy) {
  const bool comes = a.kind == ActionKind::fetch_state;
  const StatePlanes there = operands.planes(comes ? Operand::to : Operand::from);
  const StatePlanes here = operands.planes(comes ? Operand::from : Operand::to, 1);
  const LayerLayout& layout = records_[static_cast<size_t>(a.record)].layout();
  for (const TrainedRun& run : layout.trained_runs()) {
    if (there.master) {
      copy(there.master + run.state_offset, here.master + run.offset, run.count * 4);
    } else {
      copy(there.weight + run.state_offset, here.weight + run.offset, run.count * 2);
      if (there.low) copy(there.low + run.state_offset, here.low + run.low_offset, run.count * 2);
    }
  }
  copy(there.m, here.m, layout.moment_bytes());
  copy(there.v, here.v, layout.moment_bytes());
  if (comes && operands.count(Operand::to) > 1) {
    copy(operands.address(Operand::to, 1), operands.address(Operand::from, 2),
         memory_.workload().gradient_bytes(a.record));
  }
}

void Pipeline::issue(const StepBytes& step) {
  const size_t now = static_cast<size_t>(issued_ % 2);
  h2d_bytes_ = d2h_bytes_ = disk_read_bytes_ = disk_write_bytes_ = 0;
  for (size_t i = 0; i < schedule_.actions.size(); ++i) {
    const Action& action = schedule_.actions[i];
    Stream& stream = lanes_.stream(action.lane);
    for (const Wait& wait : action.waits) {
      if (issued_ < wait.steps_back) continue;
      stream.wait(*marks_[(now + static_cast<size_t>(wait.steps_back)) % 2][static_cast<size_t>(wait.action)].end);
    }
    stream.record(*marks_[now][i].start);
    perform(action, stream, step);
    stream.record(*marks_[now][i].end);
  }
  ++issued_;
}

void Pipeline::to_device(Stream& stream, void* to, const void* from, int64_t bytes) {
  stream.copy(to, from, static_cast<size_t>(bytes));
  h2d_bytes_ += bytes;
}

void Pipeline::to_host(Stream& stream, void* to, const void* from, int64_t bytes) {
  stream.copy(to, from, static_cast<size_t>(bytes));
  d2h_bytes_ += bytes;
}

void Pipeline::perform(const Action& a, Stream& stream, const StepBytes& step) {
  const Workload& w = memory_.workload();
  const auto row_bytes = [&] { return step.rows * w.record(a.record).row_width * w.element_bytes(a.record); };
  const Operands operands(memory_, a, issued_);
  const auto in = [&](int64_t bytes) {
    to_device(stream, operands.address(Operand::to), operands.address(Operand::from), bytes);
  };
  const auto out = [&](int64_t bytes) {
    to_host(stream, operands.address(Operand::to), operands.address(Operand::from), bytes);
  };
  switch (a.kind) {
    case ActionKind::fetch_inputs: return in(step.inputs);
    case ActionKind::fetch_rows: return in(row_bytes());
    case ActionKind::fetch_weights: return in(w.stored_bytes(a.record));
    case ActionKind::fetch_activations: return in(moved_activation_bytes(w, a));
    case ActionKind::offload_activations: return out(moved_activation_bytes(w, a));
    case ActionKind::fetch_state:
      return visit(a, operands, [&](void* there, void* here, int64_t bytes) { to_device(stream, there, here, bytes); });
    case ActionKind::return_state:
      return visit(a, operands, [&](void* there, void* here, int64_t bytes) { to_host(stream, here, there, bytes); });
    case ActionKind::offload_gradient:
      out(w.by_rows(a.record) ? row_bytes() : w.gradient_bytes(a.record));
      return to_host(stream, operands.address(Operand::to, 1), operands.address(Operand::squares),
                     w.record(a.record).norm_parts * 8);
    case ActionKind::report: return report(operands, stream);
    case ActionKind::collect_gradient: {
      const int64_t bytes = w.gradient_bytes(a.record);
      d2h_bytes_ += bytes;
      return lanes_.host(a.lane).run([this, operands, bytes] {
        device_.copy_now(operands.address(Operand::to), operands.address(Operand::from), static_cast<size_t>(bytes));
      });
    }
    case ActionKind::gather_rows:
      return lanes_.host(a.lane).run(
          [this, a, operands, sequence = issued_] { handler_.gather(a, operands, sequence); });
    case ActionKind::update:
      return lanes_.host(a.lane).run(
          [this, &a, operands, sequence = issued_] { handler_.update(a, operands, sequence); });
    case ActionKind::stage_weights:
    case ActionKind::fetch_moments:
    case ActionKind::fetch_gradient:
    case ActionKind::read_activations:
      for (int64_t i = 0; i < a.count(Operand::from); ++i) disk_read_bytes_ += disk_.bytes(a.at(Operand::from, i));
      return lanes_.host(a.lane).run([this, &a, operands] { read_disk(a, operands, read_after(a)); });
    case ActionKind::return_moments:
    case ActionKind::store_gradient:
    case ActionKind::store_activations:
      for (int64_t i = 0; i < a.count(Operand::to); ++i) disk_write_bytes_ += disk_.bytes(a.at(Operand::to, i));
      return lanes_.host(a.lane).run([this, &a, operands] { write_disk(a, operands); });
    case ActionKind::forward:
    case ActionKind::head:
    case ActionKind::recompute:
    case ActionKind::balance_experts:
    case ActionKind::backward:
    case ActionKind::unpack_weights:
    case ActionKind::merge_rows:
    case ActionKind::finish_gradient:
    case ActionKind::finish_losses:
    case ActionKind::clip_factor:
    case ActionKind::update_on_device: return handler_.compute(a, operands, stream);
  }
}

// Copies the report to the host: sums of squares and of losses, non-finite marks and, in training, router counts.
void Pipeline::report(const Operands& operands, Stream& stream) {
  const Workload& w = memory_.workload();
  to_host(stream, operands.address(Operand::to), operands.address(Operand::squares), w.norm_parts() * 8);
  to_host(stream, memory_.host_loss_sums(), operands.address(Operand::loss_sums), 16);
  if (operands.has(Operand::router_counts))
    to_host(stream, memory_.host_router_counts(), operands.address(Operand::router_counts), w.router_bytes());
  for (int64_t lane = 0; lane < operands.count(Operand::not_finite); ++lane)
    to_host(stream, &memory_.host_not_finite()[static_cast<size_t>(lane)], operands.address(Operand::not_finite, lane),
            sizeof(int32_t));
}

// The planes that an action moves lie one after the other in its slab.
void Pipeline::read_disk(const Action& a, const Operands& operands, const Resource* next) {
  std::byte* slab = operands.address(Operand::to);
  const int64_t count = a.count(Operand::from);
  for (int64_t i = 0; i < count; ++i) {
    const Resource& from = a.at(Operand::from, i);
    disk_.read(from, slab, i + 1 < count ? &a.at(Operand::from, i + 1) : next);
    slab += disk_.bytes(from);
  }
}

// The step after this one begins with the schedule's first read.
const Resource* Pipeline::read_after(const Action& action) const {
  const auto reads = [](const Action& other) { return other.lane == Lane::disk_read; };
  const auto begin = schedule_.actions.begin(), end = schedule_.actions.end();
  auto next = std::find_if(begin + (&action - schedule_.actions.data()) + 1, end, reads);
  if (next == end) next = std::find_if(begin, end, reads);
  return &next->at(Operand::from, 0);
}

void Pipeline::write_disk(const Action& a, const Operands& operands) {
  const std::byte* slab = operands.address(Operand::from);
  for (int64_t i = 0; i < a.count(Operand::to); ++i) {
    const Resource& to = a.at(Operand::to, i);
    disk_.write(to, slab);
    slab += disk_.bytes(to);
  }
}

void Pipeline::wait_report() {
  const std::vector<Marks>& set = marks_[static_cast<size_t>((issued_ - 1) % 2)];
  set[report_].end->block();
  // No action of this step waits for the last disk writes of the previous one, whose events the next step reuses.
  if (issued_ > 1) {
    const std::vector<Marks>& before = marks_[static_cast<size_t>(issued_ % 2)];
    for (size_t i = 0; i < before.size(); ++i) {
      if (schedule_.actions[i].lane == Lane::disk_write) before[i].end->block();
    }
  }
  for (const Lane lane : {Lane::disk_read, Lane::disk_write, Lane::gather, Lane::h2d, Lane::compute, Lane::d2h,
                          Lane::collect, Lane::visit_in, Lane::visit})
    lanes_.stream(lane).check();
}

const Pipeline::Marks* Pipeline::finished_marks(size_t action) const {
  const size_t now = static_cast<size_t>((issued_ - 1) % 2);
  if (!Lanes::runs_on(schedule_.actions[action].lane) && action <= report_) return &marks_[now][action];
  return issued_ < 2 ? nullptr : &marks_[1 - now][action];
}

LaneSeconds Pipeline::lane_seconds() const {
  LaneSeconds seconds;
  for (size_t i = 0; i < schedule_.actions.size(); ++i) {
    const Marks* marks = finished_marks(i);
    if (marks)
      seconds.busy[static_cast<size_t>(schedule_.actions[i].lane)] += device_.elapsed_s(*marks->start, *marks->end);
  }
  return seconds;
}

std::map<std::string, double> Pipeline::action_seconds() const {
  std::map<std::string, double> seconds;
  for (size_t i = 0; i < schedule_.actions.size(); ++i) {
    const Marks* marks = finished_marks(i);
    if (marks) seconds[action_name(schedule_.actions[i].kind)] += device_.elapsed_s(*marks->start, *marks->end);
  }
  return seconds;
}

Stall Pipeline::longest_stall() const {
  const size_t now = static_cast<size_t>((issued_ - 1) % 2);
  const Event* before = nullptr;  // when the compute lane became free
  if (issued_ > 1) {
    for (size_t i = 0; i < schedule_.actions.size(); ++i) {
      if (schedule_.actions[i].lane == Lane::compute) before = marks_[1 - now][i].end.get();
    }
  }
  Stall longest;
  size_t stalled = 0;
  for (size_t i = 0; i < report_; ++i) {
    if (schedule_.actions[i].lane != Lane::compute) continue;
    const Marks& marks = marks_[now][i];
    const double gap = before ? device_.elapsed_s(*before, *marks.start) : 0;
    if (gap > longest.seconds) {
      longest.seconds = gap;
      stalled = i;
    }
    before = marks.end.get();
  }
  if (longest.seconds > 0) longest.cause = cause_of(stalled, now);
  return longest;
}

// Follows the waits backwards, up to the compute lane itself. Host work is followed first, since what waits for it is
// short. The longest action on the way is the cause.
std::string Pipeline::cause_of(size_t action, size_t set) const {
  std::string cause = "the host";  // no wait: the action was issued late
  double longest = 0;
  constexpr int kDeepest = 8;
  int64_t back = 0;  // steps; there are no marks for more than one
  for (int depth = 0; depth < kDeepest; ++depth) {
    const Wait* next = nullptr;
    for (const Wait& wait : schedule_.actions[action].waits) {
      const int64_t steps = back + wait.steps_back;
      if (steps > 1 || issued_ <= steps || wait.kind.from == Lane::compute) continue;
      if (!next || (Lanes::is_host(wait.kind.from) && !Lanes::is_host(next->kind.from))) next = &wait;
    }
    if (!next) break;
    action = static_cast<size_t>(next->action);
    back += next->steps_back;
    set = (set + static_cast<size_t>(next->steps_back)) % 2;
    const double seconds = device_.elapsed_s(*marks_[set][action].start, *marks_[set][action].end);
    if (seconds <= longest) continue;
    longest = seconds;
    cause = describe(memory_.workload(), schedule_.actions[action]);
  }
  return cause;
}

int64_t Pipeline::finished_actions() const {
  int64_t finished = 0;
  for (const auto& set : marks_) {
    for (const Marks& marks : set) finished += marks.end->reached();
  }
  return finished;
}

std::string Pipeline::running_actions() const {
  std::string running;
  for (const auto& set : marks_) {
    for (size_t i = 0; i < set.size(); ++i) {
      const Action& action = schedule_.actions[i];
      if (!set[i].end->reached() && set[i].start->reached())
        running += fmt::format("{}lane {} runs {}", running.empty() ? "" : ", ", lane_name(action.lane),
                               describe(memory_.workload(), action));
    }
  }
  return running.empty() ? "all lanes are waiting" : running;
}

std::vector<Span> Pipeline::spans() const {
  const Workload& w = memory_.workload();
  std::vector<std::pair<int64_t, std::string>> places;  // for each record: its layer, and which experts
  for (int64_t record = 0; record < w.record_count(); ++record)
    places.emplace_back(w.phase_of(record), experts_of(w, record));
  std::vector<Span> spans;
  for (size_t i = 0; i < schedule_.actions.size(); ++i) {
    const Marks* marks = finished_marks(i);
    if (!marks) continue;
    const Action& action = schedule_.actions[i];
    spans.push_back({&action, device_.reached_s(*marks->start), device_.reached_s(*marks->end)});
    if (action.record >= 0)
      std::tie(spans.back().layer, spans.back().experts) = places[static_cast<size_t>(action.record)];
  }
  return spans;
}

}  // namespace megatrain
