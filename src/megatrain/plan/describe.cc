#include "megatrain/plan/describe.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"

namespace megatrain {

namespace {

// "all 28 blocks on the device", or "3 of 28 blocks on the device, 5 on disk, the others in host memory". `tier_of`
// gives the tier of each value.
template <class Value, class TierOf>
std::string places(std::span<const Value> values, const TierOf& tier_of, const char* what) {
  const int64_t all = std::ssize(values);
  std::string text;
  for (const auto& [tier, where] : {std::pair{Tier::hbm, "on the device"}, {Tier::disk, "on disk"}}) {
    const int64_t count = std::ranges::count(values, tier, tier_of);
    if (count == all) return fmt::format("all {} {} {}", all, what, where);
    if (count > 0)
      text += text.empty() ? fmt::format("{} of {} {} {}, ", count, all, what, where)
                           : fmt::format("{} {}, ", count, where);
  }
  return text.empty() ? fmt::format("all {} {} in host memory", all, what) : text + "the others in host memory";
}

// `things`: "blocks", or "records" if a block has several.
std::string weights_text(const Workload& w, const Plan& p, const char* things) {
  const int64_t streamed = p.streaming(w), all = w.layer_record_count();
  if (streamed == 0) return fmt::format("all {} {} stay on the device", all, things);
  const std::string small = p.rings.small_slots > 0 ? fmt::format(" and {} small", p.rings.small_slots) : "";
  const std::string through =
      fmt::format("stream through {}{}{}", counted(p.rings.weight_slots, "slot"), small, p.serial ? ", serially" : "");
  if (streamed == all) return fmt::format("all {} {} {}", all, things, through);
  return fmt::format("{} of {} {} stay on the device, the others {}", all - streamed, all, things, through);
}

// Weights that live neither on the device nor in host memory.
std::string staged_text(const Plan& p, const char* things, const char* all_things) {
  std::string text;
  if (const int64_t on_disk = p.with_weights_on_disk())
    text += fmt::format("weights of {} {}: on disk too, through {} slabs\n", on_disk, all_things, p.rings.weight_slabs);
  if (const int64_t in_files = p.with_weights_in_files())
    text += fmt::format("weights of {} frozen {}: stay in the model's files, read through {}\n", in_files, things,
                        counted(p.rings.weight_slabs, "slab"));
  return text;
}

// ", 8 of them in host memory and 2 on disk", if the kept activations of some of these blocks wait off the device.
std::string away_text(const std::vector<PhasePlan>& of_level) {
  std::string text;
  for (const auto& [tier, where] : {std::pair{Tier::host, "in host memory"}, {Tier::disk, "on disk"}}) {
    const int64_t blocks = std::ranges::count(of_level, tier, &PhasePlan::outputs);
    if (blocks == 0) continue;
    if (blocks == std::ssize(of_level)) return fmt::format(", all of them {}", where);
    text += text.empty() ? fmt::format(", {} of them {}", blocks, where) : fmt::format(" and {} {}", blocks, where);
  }
  return text;
}

// Which activations are kept for backward, which recomputes the rest. `first`: the lowest block with a backward. Blocks
// with the same level name are reported together.
std::string kept_text(const Workload& w, const Plan& p, int64_t first) {
  std::vector<std::pair<std::string, std::vector<PhasePlan>>> levels;
  const auto blocks_of = [&](const std::string& name) -> std::vector<PhasePlan>& {
    for (auto& [known, blocks] : levels) {
      if (known == name) return blocks;
    }
    return levels.emplace_back(name, std::vector<PhasePlan>{}).second;
  };
  for (int64_t phase = first; phase < w.head_phase(); ++phase) {
    for (const KeepWork& level : w.phase(phase).levels) blocks_of(level.name);
    blocks_of(w.phase(phase).level(p.phase(phase).keep).name).push_back(p.phase(phase));
  }
  std::string text;
  for (const auto& [name, blocks] : levels) {
    if (blocks.empty()) continue;
    const int64_t count = std::ssize(blocks);
    if (count == w.head_phase() - first)
      return name == "nothing" ? "none (all blocks recompute)"
                               : fmt::format("{} in every block{}", name, away_text(blocks));
    text += fmt::format("{}{} in {}{}", text.empty() ? "" : ", ", name, counted(count, "block"), away_text(blocks));
  }
  return text.empty() ? "none (no block has a backward)" : text;
}

// The memory lent to generation: activations, workspace and weight slots.
std::string samples_text(const Workload& w, const MemoryNeed& need) {
  const int64_t aside = std::min(need.bytes_of(ResourceKind::generation), w.generation_bytes);
  return fmt::format(
      "samples: use {} of device memory between steps, {}\n", format_bytes(w.generation_bytes),
      aside == 0 ? "all shared with training memory"
                 : fmt::format("{} of it set aside, the rest shared with training memory", format_bytes(aside)));
}

}  // namespace

std::string describe(StateFormat format) {
  if (format == StateFormat{}) return "state: fp32 moments and master, exact";
  return fmt::format("state: {} moments, {} master: smaller, not exact", moments_name(format.moments),
                     master_name(format.master));
}

std::string describe_parameters(const Workload& w) {
  const std::string all = format_count(w.parameters) + " parameters";
  if (w.active_parameters == w.parameters) return all;
  return all + fmt::format(" ({} active)", format_count(w.active_parameters));
}

std::string experts_of(const Workload& w, int64_t record) {
  if (w.record(record).token_rows) return "rows of tokens";
  if (w.record(record).adapter) return "adapters";
  if (w.record(record).buffers) return "buffers";
  if (w.experts == 0 || !w.is_layer_record(record)) return "";
  const std::vector<int64_t>& records = w.phase(w.phase_of(record)).records;
  if (record == records.front()) return "";  // attention, norms and router
  const int64_t held = w.record(record).norm_parts;
  if (held == w.experts) return "experts";
  int64_t first = 1;
  for (size_t before = 1; records[before] != record; ++before) {
    const RecordWork& other = w.record(records[before]);
    if (!other.buffers) first += other.norm_parts;
  }
  const int64_t last = first + held - 1;
  return first == last ? fmt::format("expert {}", first) : fmt::format("experts {} to {}", first, last);
}

std::string describe_record(const Workload& w, int64_t record) {
  const std::string experts = experts_of(w, record);
  return fmt::format("{}layer {}", experts.empty() ? "" : experts + " of ", w.phase_of(record));
}

std::string explain(const Workload& w, const Plan& p, const Estimate& e) {
  const MemoryNeed need = memory_need(w, p);
  std::string text;
  text += fmt::format("{} in {}; {} tokens a step in {} of {}\n", describe_parameters(w),
                      counted(w.layer_phases(), "block"), w.tokens(),
                      counted(w.micro_batches, "micro-batch", "micro-batches"), w.micro_tokens);
  if (w.trained_parameters < w.parameters)
    text += fmt::format("{} of them are trained, the others frozen\n", format_count(w.trained_parameters));
  const bool several = w.layer_record_count() > w.layer_phases();  // some block has several records
  const char* things = several ? "records" : "blocks";
  if (several) {
    const int64_t adapters = w.adapter_records() - w.token_row_records(),
                  buffers = std::ranges::count_if(w.records, [](const RecordWork&r) { return r.buffers; }),
                  experts = w.layer_record_count() - w.layer_phases() - adapters - buffers;
    text += fmt::format("{} records: ", w.layer_record_count());
    if (adapters > 0) text += fmt::format("{} hold adapters, ", adapters);
    if (experts > 0) text += fmt::format("{} hold experts, ", experts);
    if (buffers > 0) text += fmt::format("{} hold buffers, ", buffers);
    text += experts > 0 ? "the others a block's attention, norms and router\n" : "the others a block's weights\n";
  }
  text += fmt::format("weights: {}\n", weights_text(w, p, things));
  if (const int64_t packed = std::ranges::count_if(w.records, [](const RecordWork& r) { return r.packed_bytes > 0; }))
    text += fmt::format("packed: the weights of {} frozen {}, unpacked on the device when they are needed\n", packed,
                        things);
  const char* all_things = several ? things : "layers";  // includes embedding and head
  text +=
      fmt::format("optimizer state: {}\n",
                  places(
                      std::span<const RecordPlan>(p.records),
                      [](const RecordPlan& r) { return r.state == Tier::hbm ? Tier::hbm : Tier::host; }, all_things));
  if (const int64_t visitors = p.visitors())
    text += fmt::format("updated on the device: the state of {} {} is copied in and back{}\n", visitors, things,
                        p.rings.visit_slots > 0 ? ", through " + counted(p.rings.visit_slots, "slot") : "");
  if (const int64_t on_disk = p.with_moments_on_disk())
    text += fmt::format("moments of {} {}: on disk, through {} slabs of host memory\n", on_disk, all_things,
                        p.rings.moment_slabs);
  text += staged_text(p, things, all_things);
  for (const auto& [tier, where] :
       {std::pair{Tier::hbm, "on the device, in the memory of the blocks' inputs"}, {Tier::disk, "on disk"}}) {
    if (const int64_t count = std::ranges::count(p.records, tier, &RecordPlan::gradient))
      text += fmt::format("gradients of {} {}: wait for the norm {}\n", count, all_things, where);
  }
  const int64_t passed = std::max<int64_t>(0, w.first_trained_phase() - 1);
  const std::span<const PhasePlan> backward =
      p.layer_phases().subspan(static_cast<size_t>(std::min(passed, w.layer_phases())));
  if (passed > 0)
    text += fmt::format("backward stops above the first {}: everything below is frozen\n",
                        passed == 1 ? "block" : counted(passed, "block"));
  text += fmt::format("activations kept: {}\n", kept_text(w, p, passed + 1));
  if (!backward.empty()) {
    text += fmt::format("block inputs: {}", places(backward, &PhasePlan::input, "blocks'"));
    if (p.input_every > 1)
      text += fmt::format("; one of every {} is kept, the others are recomputed from it", p.input_every);
    text += "\n";
  }
  text +=
      p.sweeps.size() == 1
          ? "sweeps: 1, each block's weights are fetched once per pass and reused by all micro-batches\n"
          : fmt::format("sweeps: {}, of at most {}\n", p.sweeps.size(),
                        counted(*std::max_element(p.sweeps.begin(), p.sweeps.end()), "micro-batch", "micro-batches"));
  if (w.generation_bytes > 0) text += samples_text(w, need);
  for (const auto& [title, bytes, total] : {std::tuple{"device memory", &need.hbm, need.hbm_bytes()},
                                            {"host memory", &need.host, need.host_bytes()},
                                            {"disk", &need.disk, need.disk_bytes()},
                                            {"model's files, only read", &need.files, need.file_bytes()}}) {
    if (total > 0) text += fmt::format("{}: {}\n", title, format_bytes(total));
    for (size_t kind = 0; kind < bytes->size(); ++kind) {
      if ((*bytes)[kind] > 0)
        text += fmt::format("  {:<30}{:>12}\n", resource_name(static_cast<ResourceKind>(kind)),
                            format_bytes((*bytes)[kind]));
    }
  }
  text += fmt::format("estimated step: {}, bound by {} (compute {}, h2d {}, d2h {}, update {}{})\n",
                      format_seconds(e.step_s), e.bound_by, format_seconds(e.compute_s), format_seconds(e.h2d_s),
                      format_seconds(e.d2h_s), format_seconds(e.update_s),
                      e.disk_read_s > 0 ? fmt::format(", disk read {}, disk write {}", format_seconds(e.disk_read_s),
                                                      format_seconds(e.disk_write_s))
                                        : "");
  return text;
}

}  // namespace megatrain
