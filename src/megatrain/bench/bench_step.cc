// `bench step`: the trainer's own loop on random weights and tokens.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/base/version.h"
#include "megatrain/bench/bench.h"
#include "megatrain/config/arguments.h"
#include "megatrain/host/memory.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/model/model.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/run/metrics.h"
#include "megatrain/store/pieces.h"
#include "megatrain/tensor/mxfp4.h"
#include "megatrain/train/optim_settings.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

namespace {

constexpr int64_t kCachesOfState = 4;  // minimum distinct state of aliased layers, as a multiple of the cache

// Uniform ids; every position is trained except the last of each sequence.
Batch random_batch(const TrainConfig& config, int64_t vocab, int64_t step) {
  constexpr uint64_t kPurpose = 0x62656e6368;  // "bench"
  Batch batch;
  const int64_t tokens = config.micro_batch * config.seq_len;
  for (int64_t m = 0; m < config.batch / config.micro_batch; ++m) {
    MicroBatch micro;
    const int64_t first = (step * config.batch / config.micro_batch + m) * tokens;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t position = t % config.seq_len;
      if (position == 0) micro.document_begin.push_back(static_cast<int32_t>(t));
      micro.tokens.push_back(static_cast<int32_t>(
          random_below(config.seed, kPurpose, static_cast<uint64_t>(first + t), static_cast<uint64_t>(vocab))));
      micro.positions.push_back(static_cast<int32_t>(position));
    }
    micro.document_begin.push_back(static_cast<int32_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      const bool last = (t + 1) % config.seq_len == 0;
      micro.labels.push_back(last ? kIgnoreLabel : micro.tokens[static_cast<size_t>(t + 1)]);
    }
    micro.longest = config.seq_len;
    micro.trained = config.micro_batch * (config.seq_len - 1);
    batch.tokens += tokens;
    batch.trained += micro.trained;
    batch.micro_batches.push_back(std::move(micro));
  }
  return batch;
}

// Two pieces of random numbers, as a source packs them.
std::vector<float> random_table(Session& session, WeightPacking packing) {
  std::vector<float> table(2 * kPiece);
  const TensorSpec drawn{.name = "bench", .rows = 2, .cols = kPiece, .packing = packing};
  const TrainConfig& config = session.config();
  constexpr int64_t kPart = kPiece / 64;
  parallel_for(static_cast<int>(config.threads), std::ssize(table) / kPart, [&](int64_t part) {
    init_tensor(session.model(), drawn, config.seed, part * kPart, kPart, table.data() + part * kPart);
  });
  return table;
}

// Fills weights with random numbers at memory speed: each piece of a tensor copies a different part of one table.
void fill_with_random_weights(Session& session) {
  const std::vector<float> plain = random_table(session, WeightPacking::none),
                           packed = random_table(session, WeightPacking::mxfp4);
  const TrainConfig& config = session.config();
  init_fp8_scales(session.model(), session.trainer().records());
  for_pieces(session.trainer().records(), static_cast<int>(config.threads), "drawing random weights",
             [&](const TensorPiece& piece, float* scratch) {
               const TensorSpec& tensor = *piece.tensor;
               const int64_t record = piece.record - session.trainer().records().data();
               if (session.workload().home(record) != record) return;
               const float* values = scratch;
               if (tensor.is_vector() || tensor.packing == WeightPacking::fp8) {
                 init_tensor(session.model(), tensor, config.seed, piece.begin, piece.count, scratch);
               } else {
                 const uint64_t place = random_below(config.seed, tensor.name_hash(),
                                                     static_cast<uint64_t>(piece.begin), static_cast<uint64_t>(kPiece));
                 values = tensor.packing == WeightPacking::mxfp4 ? packed.data() + place / kMxfp4Block * kMxfp4Block
                                                                 : plain.data() + place;
               }
               if (tensor.exact) {  // as if loaded from a bf16 file
                 std::transform(values, values + piece.count, scratch, [](float x) { return to_float(to_bf16(x)); });
                 values = scratch;
               }
               piece.record->write_master(tensor, piece.begin, piece.count, values);
             });
}

// When the kernel started this process, on the clock of now_s().
double process_start_s() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return now_s();
  std::istringstream fields(text.substr(end_of_name + 1));
  constexpr int kStartTime = 22, kFirstField = 3;
  std::string field;
  for (int i = kFirstField; i <= kStartTime; ++i) fields >> field;
  timespec since_boot{};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const double age = static_cast<double>(since_boot.tv_sec) + static_cast<double>(since_boot.tv_nsec) * 1e-9 -
                     std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return now_s() - age;
}

nlohmann::json floor_json(const Floor* floor) {
  if (!floor) return {};
  return {{"tokens_per_s", floor->keep_tokens_per_s()},
          {"mode", "keep"},
          {"recompute", floor->recompute_tokens_per_s()},
          {"keep", floor->keep_tokens_per_s()}};
}

nlohmann::json lanes_json(const StepReport& report) {
  nlohmann::json lanes = nlohmann::json::object();
  for (int i = 0; i < kLanes; ++i) {
    const double busy = report.lanes.busy[static_cast<size_t>(i)];
    lanes[lane_name(static_cast<Lane>(i))] = {{"busy_s", busy}, {"busy_percent", 100 * busy / report.seconds}};
  }
  return lanes;
}

// Aliases layers as --alias-layers says; 0 if they are not aliased.
int64_t alias_as_asked(Session& session, const Arguments& arguments) {
  const auto layers = arguments.integer("--alias-layers");
  if (!layers) return 0;
  if (!session.config().memory.nvme_path.empty())
    fail_config("--alias-layers keeps all state in RAM; leave memory.nvme_path out");
  session.alias_layers(*layers);
  const Workload& w = session.workload();
  int64_t distinct = 0;
  for (int64_t r = 1; r <= w.alias_records; ++r) distinct += w.weight_bytes(r) + w.low_bytes(r) + 2 * w.moment_bytes(r);
  if (const int64_t cache = last_level_cache_bytes(); distinct < kCachesOfState * cache)
    fail_config(fmt::format(
        "--alias-layers {} leaves {} of state, which the CPU's cache of {} would speed up; expected at "
        "least {} layers",
        *layers, format_bytes(distinct), format_bytes(cache), ceil_div(kCachesOfState * cache, distinct / *layers)));
  log_info(
      fmt::format("aliased: {} layers live in the memory of {}; the learning rate is 0, and loss and norm mean nothing",
                  w.layer_record_count(), *layers));
  return *layers;
}

// The configuration's plan, modified by --slots and --serial.
void plan_as_asked(Session& session, const Arguments& arguments) {
  const auto slots = arguments.integer("--slots");
  Budgets budgets = session.budgets();
  if (slots) budgets.state_on_host = true;  // so that every block streams
  Plan plan = choose_plan(session.config(), session.workload(), budgets, session.profile(), nullptr);
  if (slots) {
    plan.rings.weight_slots = *slots;
    for (const int64_t record : session.workload().layer_records()) plan.record(record).weights = Tier::host;
  }
  plan.serial = plan.serial || arguments.flag("--serial");
  session.use_plan(plan);
  std::istringstream lines(explain(session.workload(), plan, estimate(session.workload(), plan, session.profile())));
  for (std::string line; std::getline(lines, line);) log_info(line);
}

struct TimedSteps {
  std::vector<double> step_s, loss, grad_norm;
  StepReport last;
  int64_t hbm_bytes = 0;    // highest device memory in use after any step
  int64_t allocations = 0;  // made after the first step

  // Leaves out the first step, which also warms up.
  double median_s() const {
    std::vector<double> seconds(step_s.begin() + (step_s.size() > 1), step_s.end());
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

TimedSteps time_steps(Session& session, int64_t steps, double lr) {
  TimedSteps timed;
  Trace trace;
  const TrainConfig& config = session.config();
  Trainer& trainer = session.trainer();
  Device& device = session.device();
  for (int64_t step = 1; step <= steps; ++step) {
    const Batch batch = random_batch(config, session.model().vocab, step - 1);
    trainer.trace_into(config.trace.contains(step) ? &trace : nullptr);
    timed.last = trainer.step(batch, optim_step_of(config, lr, step));
    log_info(joined(metrics_fields({.step = step, .steps = steps, .lr = lr, .report = timed.last})));
    timed.step_s.push_back(timed.last.seconds);
    timed.loss.push_back(timed.last.loss);
    timed.grad_norm.push_back(timed.last.grad_norm);
    timed.hbm_bytes = std::max(timed.hbm_bytes, device.memory_used());
    const int64_t now = device.ledger().allocations() + device.host_ledger().allocations();
    if (step == 1) timed.allocations = now;
    if (step == steps) timed.allocations = now - timed.allocations;
  }
  trainer.drain();
  if (!trace.empty()) {
    write_text_file("trace.json", trace.json());
    log_info("the traced steps are in trace.json");
  }
  return timed;
}

// The measurements of one bench on its session.
struct MeasuredStep {
  TimedSteps timed;
  const Floor* floor = nullptr;  // nullptr: not requested
  int64_t alias_layers = 0;
  double start_s = 0;   // until the first step
  bool hashed = false;  // whether the state's hash is requested

  double tokens_per_s(const Workload& w) const { return static_cast<double>(w.tokens()) / timed.median_s(); }
  double tflops(const Workload& w) const {
    return 6 * static_cast<double>(w.active_parameters) * static_cast<double>(w.tokens()) / timed.median_s() * 1e-12;
  }
  double percent_of_floor(const Workload& w) const { return 100 * tokens_per_s(w) / floor->keep_tokens_per_s(); }
};

nlohmann::json bytes_json(const StepReport& last) {
  return {{"h2d", last.h2d_bytes},
          {"d2h", last.d2h_bytes},
          {"disk_read", last.disk_read_bytes},
          {"disk_write", last.disk_write_bytes}};
}

nlohmann::json peaks_json(int64_t hbm_bytes, const MemoryNeed& need) {
  return {{"hbm", hbm_bytes},
          {"hbm_planned", need.hbm_bytes()},
          {"host", host_memory_peak()},
          {"host_planned", need.host_bytes()},
          {"disk_planned", need.disk_bytes()}};
}

nlohmann::json machine_json(Session& session) {
  return {{"device", session.device().name()},
          {"library", session.identity().library},
          {"cpus", usable_cpus().size()},
          {"host_bytes", host_memory_available()}};
}

nlohmann::json step_json(Session& session, const MeasuredStep& measured) {
  const Workload& w = session.workload();
  const TimedSteps& timed = measured.timed;
  const StepReport& last = timed.last;
  const double median = timed.median_s();
  const auto hash = [&] { return hash_state(session.trainer().records(), std::ssize(timed.step_s)).state; };
  return {{"params", w.parameters},
          {"active_params", w.active_parameters},
          {"tokens_per_step", w.tokens()},
          {"step_s", timed.step_s},
          {"median_s", median},
          {"estimated_s", estimate(w, session.plan(), session.profile()).step_s},
          {"state", {{"moments", moments_name(w.state.moments)}, {"master", master_name(w.state.master)}}},
          {"tokens_per_s", measured.tokens_per_s(w)},
          {"tflops_6n", measured.tflops(w)},
          {"tflops_model", w.model_flops() * static_cast<double>(w.tokens()) / median * 1e-12},
          {"floor", floor_json(measured.floor)},
          {"percent_of_floor", measured.floor ? nlohmann::json(measured.percent_of_floor(w)) : nlohmann::json()},
          {"bound_by", last.bound_by()},
          {"stall", {{"seconds", last.stall.seconds}, {"for", last.stall.cause}}},
          {"lanes", lanes_json(last)},
          {"actions", session.trainer().pipeline().action_seconds()},
          {"bytes", bytes_json(last)},
          {"peaks", peaks_json(timed.hbm_bytes, memory_need(w, session.plan()))},
          {"steady_allocations", timed.allocations},
          {"loss", timed.loss},
          {"grad_norm", timed.grad_norm},
          {"state_hash", measured.hashed ? nlohmann::json(hash()) : nlohmann::json()},
          {"start_s", measured.start_s},
          {"unified_memory", session.device().kind() != DeviceKind::cuda},
          {"aliased", measured.alias_layers > 0},
          {"alias_layers", measured.alias_layers},
          {"commit", kBuildCommit},
          {"machine", machine_json(session)}};
}

std::string step_text(Session& session, const MeasuredStep& measured) {
  const Workload& w = session.workload();
  const TimedSteps& timed = measured.timed;
  const int64_t layers = measured.alias_layers;
  return fmt::format(
      "{}{:.0f} tokens/s{}, {:.4g} s a step (median of {}), {:.0f} TFLOP/s, bound by {}, device peak {} (planned {}), "
      "host peak {}; {}\n",
      layers > 0 ? fmt::format("aliased ({} of {} layers): ", layers, w.layer_phases()) : "", measured.tokens_per_s(w),
      measured.floor ? fmt::format(" ({:.1f}% of the floor)", measured.percent_of_floor(w)) : "", timed.median_s(),
      std::max<int64_t>(std::ssize(timed.step_s) - 1, 1), measured.tflops(w), timed.last.bound_by(),
      format_bytes(timed.hbm_bytes), format_bytes(memory_need(w, session.plan()).hbm_bytes()),
      format_bytes(host_memory_peak()), describe(w.state));
}

int64_t steps_as_asked(const Arguments& arguments) {
  const int64_t steps = arguments.integer("-r").value_or(5);
  if (steps < 1) fail_config(fmt::format("-r is {}; expected at least one step", steps));
  if (arguments.flag("--floor") && arguments.flag("--no-floor"))
    fail_config("--floor and --no-floor exclude each other; leave one of them out");
  return steps;
}

}  // namespace

BenchResult bench_step(const Arguments& arguments) {
  BenchSession shared{.start_s = process_start_s(), .floors = {}};
  return bench_step(arguments, shared);
}

BenchResult bench_step(const Arguments& arguments, BenchSession& shared) {
  const int64_t steps = steps_as_asked(arguments);
  Session session = open_bench_target(arguments, Shape::whole_step);
  check_disk(session.config());
  const auto& traced = session.config().trace.ranges;
  if (!traced.empty() && traced.back().second > steps)
    fail_config(
        fmt::format("trace names step {}, and -r is {}; name steps that are timed", traced.back().second, steps));
  MeasuredStep measured;
  measured.alias_layers = alias_as_asked(session, arguments);
  measured.hashed = !arguments.flag("--no-hash") && measured.alias_layers == 0;
  session.choose_algorithms();
  const bool cuda = session.device().kind() == DeviceKind::cuda;
  const bool wants_floor = arguments.flag("--floor") || (cuda && !arguments.flag("--no-floor"));
  const double before_floor = now_s();
  if (wants_floor) measured.floor = &measure_floor(session, shared.floors);
  const double floor_s = now_s() - before_floor;  // not part of a run's startup
  plan_as_asked(session, arguments);
  if (const std::string disk = session.trainer().disk().description(); !disk.empty()) log_info(disk);
  fill_with_random_weights(session);
  measured.start_s = now_s() - shared.start_s - floor_s;
  // with a rate of 0, memory that layers share never changes while another layer computes on it
  const double lr = measured.alias_layers > 0 ? 0 : session.config().optim.lr;
  measured.timed = time_steps(session, steps, lr);
  return {.json = step_json(session, measured), .text = step_text(session, measured)};
}

}  // namespace megatrain
